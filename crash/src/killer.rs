//! The schedule: kills the server at random moments and starts it again, until the run is over.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::actions::{CallOutcome, call, open};
use crate::check::{CheckFault, FaultKind, Script};
use crate::server::{Launch, ServerStore, ServerUnderTest, StartFailure};
use crate::session::{ClientSession, tool};
use crate::tear::tear;
use crate::world::{DEADLINE, MAX_VIOLATIONS, World, count};

/// When to stop killing.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) kills: Option<u64>,
    pub(crate) until: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Killer<'a> {
    world: &'a World,
    launch: &'a Launch,
    rng: Rng,
    tears: bool,
    /// A session that is asked after starts, to measure the time to its first answer.
    probe: Option<ClientSession>,
    probes: u32,
}

impl<'a> Killer<'a> {
    pub(crate) fn new(world: &'a World, launch: &'a Launch, rng: Rng, tears: bool) -> Killer<'a> {
        Killer { world, launch, rng, tears, probe: None, probes: 0 }
    }

    /// Starts the server for the first time.
    pub(crate) async fn begin(&mut self) -> Result<ServerUnderTest> {
        let server = self.start().await?;
        self.ask().await;
        Ok(server)
    }

    /// Kills and restarts the server until a limit is reached.
    pub(crate) async fn run(
        &mut self,
        mut server: ServerUnderTest,
        limit: &Limit,
    ) -> Result<ServerUnderTest> {
        loop {
            let over = match (limit.kills, limit.until) {
                (Some(0), Some(until)) => return self.idle(server, until).await,
                (kills, until) => {
                    kills.is_some_and(|kills| self.world.kills() >= kills)
                        || until.is_some_and(|until| Instant::now() >= until)
                }
            };
            if over || (self.world.expects_loss && self.world.noticed_loss()) {
                return Ok(server);
            }
            if self.world.violations().len() > MAX_VIOLATIONS {
                bail!("more than {MAX_VIOLATIONS} violations: the run is given up");
            }
            let wait = match self.rng.u8(0..8) {
                // Soon after the start, while sessions wake.
                0 => self.rng.u64(0..60),
                _ => self.rng.u64(100..3000),
            };
            self.wait(&mut server, Duration::from_millis(wait)).await?;
            server = self.kill_and_restart(server).await?;
            // Sometimes the next kill comes before the first answer.
            if self.rng.u8(0..6) > 0 {
                self.first_answer(&server).await;
            }
        }
    }

    /// One kill, and the start after it.
    pub(crate) async fn kill_and_restart(&mut self, server: ServerUnderTest) -> Result<ServerUnderTest> {
        self.kill(server).await?;
        while self.rng.u8(0..4) == 0 {
            // Kill during the start: mostly at once, sometimes when the server is about to serve.
            let early = self.launch.start()?;
            let longest = if self.rng.u8(0..3) == 0 { 400 } else { 50 };
            sleep(Duration::from_millis(self.rng.u64(0..longest))).await;
            self.kill(early).await?;
        }
        let server = self.start().await?;
        count(&self.world.tally.restarts);
        self.world.tally.readies.add(server.age());
        Ok(server)
    }

    /// From now on kills leave the journal alone.
    pub(crate) fn stop_tearing(&mut self) {
        self.tears = false;
    }

    async fn idle(&mut self, mut server: ServerUnderTest, until: Instant) -> Result<ServerUnderTest> {
        self.wait(&mut server, until.saturating_duration_since(Instant::now())).await?;
        Ok(server)
    }

    /// Waits, and fails if the server ends meanwhile.
    async fn wait(&self, server: &mut ServerUnderTest, time: Duration) -> Result<()> {
        tokio::select! {
            () = sleep(time) => Ok(()),
            status = server.ended() => {
                let detail = format!("it ended by itself: {}", status?);
                self.world.violation("server", CheckFault::new(FaultKind::ServerFailed, detail));
                bail!("the server ended by itself");
            }
        }
    }

    async fn kill(&mut self, server: ServerUnderTest) -> Result<()> {
        self.world.killing(0);
        server.kill().await?;
        if let (true, ServerStore::Disk(folder)) = (self.tears, &self.launch.store) {
            // Recorded even if no byte was cut: then the checks are only more lenient than necessary.
            self.world.torn();
            tear(folder, &mut self.rng).context("tear the journal")?;
        }
        if let Some(power) = &self.launch.power {
            power.cut().context("drop unsynced data")?;
            count(&self.world.tally.powerless);
        }
        Ok(())
    }

    /// Starts the server and waits until it serves; repairs its store if necessary.
    async fn start(&mut self) -> Result<ServerUnderTest> {
        let mut repaired = false;
        loop {
            let mut server = self.launch.start()?;
            match server.ready().await? {
                Ok(()) if self.launch.power.as_ref().is_some_and(|power| !power.is_wired()) => {
                    bail!("the server runs without the library that says what it has synced");
                }
                Ok(()) => {
                    self.world.ready(0);
                    return Ok(server);
                }
                Err(StartFailure::Ended(_))
                    if self.tears && !repaired && self.launch.speaks_of_lost_data() =>
                {
                    self.launch.repair().await?;
                    self.world.repaired();
                    repaired = true;
                }
                Err(refusal) => {
                    let detail = format!("it does not start: {refusal}");
                    self.world.violation("server", CheckFault::new(FaultKind::ServerFailed, detail));
                    bail!("the server does not start");
                }
            }
        }
    }

    /// Measures how long it takes from the start of the process to an answer in an old session.
    async fn first_answer(&mut self, server: &ServerUnderTest) {
        if self.ask().await {
            self.world.tally.first_answers.add(server.age());
        }
    }

    /// Sends a request to the probe session. `false` if that session was not begun yet, or no answer came.
    async fn ask(&mut self) -> bool {
        if let Some(session) = self.probe.take_if(|session| session.is_over()) {
            drop(session);
        }
        let Some(session) = &self.probe else {
            self.probes += 1;
            self.probe = open(self.world, 0, self.probes, &mut self.rng).await;
            return false;
        };
        let text = format!("probe {}", self.rng.u64(..));
        let (params, script) = (tool("public_echo", &json!({ "text": text })), Script::Echo { text });
        let asked = Instant::now();
        let outcome = call(self.world, session, "tools/call", &params, script, self.rng.fork()).await;
        asked.elapsed() < DEADLINE && matches!(outcome, CallOutcome::Answered(_))
    }
}
