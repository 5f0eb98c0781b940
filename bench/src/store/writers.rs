//! So many tasks, each with its own session and one append of one event in flight.
//!
//! The same closed loop as for calls drives a store and the baseline.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{EntryPlace, Epoch, NewEvent, Store};

use super::material::{self, Bodies};
use crate::load::{Calls, Load, Window, drive};
use crate::process::CpuTime;

/// Writers use sessions from this number on, so that they meet none that a store was filled with.
const FIRST_SESSION: u64 = 1 << 40;

/// Takes events.
pub(super) trait Append: Clone + Send + Sync + 'static {
    /// Done when the event is kept as well as was promised.
    fn append(&self, writer: usize, body: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// The sessions of so many writers.
pub(super) fn sessions(count: usize) -> Vec<SessionKey> {
    (0..count as u64).map(|writer| material::session(FIRST_SESSION + writer).key()).collect()
}

/// Puts events into a store.
#[derive(Clone)]
pub(super) struct IntoStore {
    store: Arc<dyn Store>,
    sessions: Arc<[(SessionKey, Epoch)]>,
    at: Time,
}

impl IntoStore {
    /// Takes the sessions of so many writers.
    pub(super) async fn claim(store: &Arc<dyn Store>, count: usize) -> Result<IntoStore> {
        let node = NodeId::random();
        let mut owned = Vec::with_capacity(count);
        for session in sessions(count) {
            // A writer that was killed may have had it before.
            let held = store.owner(session).await.context("look who owns a session")?;
            let epoch = store.claim(session, node, held.map(|(_, epoch)| epoch)).await;
            owned.push((session, epoch.context("claim a session")?));
        }
        Ok(IntoStore { store: Arc::clone(store), sessions: owned.into(), at: SystemClock.now() })
    }
}

impl Append for IntoStore {
    async fn append(&self, writer: usize, body: Bytes) -> Result<()> {
        let (session, epoch) = self.sessions[writer];
        let event = NewEvent { stream: StreamId::STANDALONE, body, place: EntryPlace::Middle, at: self.at };
        self.store.append(session, epoch, vec![event]).await.context("append an event")?;
        Ok(())
    }
}

/// One task that appends.
pub(super) struct Writer<A> {
    into: A,
    writer: usize,
    bodies: Arc<Bodies>,
    next_body: usize,
}

impl<A: Append> Calls for Writer<A> {
    async fn call(&mut self) -> Result<()> {
        let body = self.bodies.get(self.next_body);
        self.next_body += 1;
        self.into.append(self.writer, body).await
    }
}

/// Lets so many writers append for a while, measures one window with the CPU time of this process, and stops them.
pub(super) async fn write(
    into: &impl Append,
    count: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Window<CpuTime>> {
    let bodies = Arc::new(Bodies::new());
    let writers = (0..count).map(|writer| Writer {
        into: into.clone(),
        writer,
        bodies: Arc::clone(&bodies),
        // Far apart, so that writers do not write the same bodies at the same time.
        next_body: writer * 31,
    });
    let load = Load { connections: count, warm_up, window };
    let (window, _) = drive(writers.collect(), load, || CpuTime::of("self")).await?;
    Ok(window)
}
