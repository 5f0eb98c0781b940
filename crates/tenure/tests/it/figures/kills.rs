//! What is counted over kills, held against what clients saw (OB7): a process counts from nothing, so each is held to its own.

use std::net::SocketAddr;

use super::{samples, scraped, sum};
use crate::gateway::crashing::{begin, rest};
use crate::gateway::running::Gateway;
use crate::support::address::own_address;
use crate::support::session::Session;

/// What clients saw of one process.
#[derive(PartialEq, Debug, Default)]
struct Seen {
    /// Answers that were results of calls which an earlier process had begun.
    run_again: f64,
    interrupted: f64,
    /// Streams that they came back to, and missed nothing of.
    resumed: f64,
    ended: f64,
}

impl Seen {
    /// The same as the process has counted it.
    async fn counted(metrics: SocketAddr) -> Self {
        let text = scraped(metrics).await;
        let of = |name: &str, label: &str| sum(&text, name, &[label]);
        for outcome in ["gap", "foreign"] {
            let label = format!("outcome=\"{outcome}\"");
            assert_eq!(of("tenure_stream_resumes_total", &label), 0.0, "{text}");
        }
        assert!(!samples(&text, "tenure_sessions_ended_total").is_empty(), "{text}");
        Self {
            run_again: of("tenure_calls_interrupted_total", "outcome=\"rerun\""),
            interrupted: of("tenure_calls_interrupted_total", "outcome=\"error\""),
            resumed: of("tenure_stream_resumes_total", "outcome=\"replayed\""),
            ended: of("tenure_sessions_ended_total", "reason=\"deleted\""),
        }
    }
}

#[tokio::test]
async fn ob7_what_is_counted_over_kills_is_what_clients_saw() {
    // The same one for each process; no other test takes a port of this address meanwhile.
    let metrics = std::net::TcpListener::bind(own_address()).unwrap().local_addr().unwrap();
    let mut gateway = Gateway::start(&[&format!("metrics.listen={metrics}")]).await;
    let mut seen = Seen::default();
    for round in 0..3 {
        let gate = gateway.folder.path().join(format!("gate-{round}"));
        let mut running = Vec::new();
        for _ in 0..3 {
            let session = Session::start(gateway.address).await;
            let is_safe = begin(&session, 1, "slow_safe", &gate).await;
            let is_not = begin(&session, 2, "slow", &gate).await;
            running.push((session, is_safe.last_id(), is_not.last_id()));
        }
        let gone = Session::start(gateway.address).await;
        assert!(gone.delete().send(gateway.address).await.status() < 300);
        seen.ended += 1.0;
        assert_eq!(Seen::counted(metrics).await, seen, "before kill {round}");

        gateway.kill_and_start_again().await;
        seen = Seen::default();
        std::fs::write(&gate, "").unwrap();
        for (session, is_safe, is_not) in &running {
            assert_eq!(rest(&mut session.resume(is_not).await).await, ["error 2 interrupted"]);
            let answers = rest(&mut session.resume(is_safe).await).await;
            assert_eq!(answers.last().map(String::as_str), Some("result 1"), "{answers:?}");
            (seen.interrupted, seen.run_again, seen.resumed) =
                (seen.interrupted + 1.0, seen.run_again + 1.0, seen.resumed + 2.0);
        }
        for (session, ..) in &running[..2] {
            assert!(session.delete().send(gateway.address).await.status() < 300);
            seen.ended += 1.0;
        }
        let response = gone.tool(9, "echo", &serde_json::json!({})).await;
        assert_eq!(response.status(), 404, "an end is not counted twice");
        assert_eq!(Seen::counted(metrics).await, seen, "after kill {round}");
    }
}
