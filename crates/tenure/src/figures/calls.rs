//! The calls that ended last, in the order in which they ended.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::Method;
use tenure_session::port::clock::Time;
use tenure_session::{Principal, SessionKey};
use tenure_transport::observe::{Outcome, RequestEnd};

use super::short_text::ShortText;
use super::view::{CallOutcome, RecentCall};
use crate::url_text::public_name;

/// The most that are kept.
const MOST: usize = 500;

/// The longest name that is kept.
const LONGEST: usize = 128;

/// The calls that ended last.
#[derive(Debug, Default)]
pub(super) struct RecentCalls(Mutex<VecDeque<EndedCall>>);

/// A call as it is kept: most of it is shared with what it is about.
#[derive(Clone, Debug)]
pub(super) struct EndedCall {
    at: Time,
    session: Option<SessionKey>,
    label: Option<Box<str>>,
    owner: Principal,
    pub(super) backend: Option<ShortText>,
    pub(super) method: Method,
    pub(super) name: Option<ShortText>,
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
    pub(super) has_failed: bool,
    pub(super) protocol: Option<&'static str>,
    pub(super) transport: &'static str,
    bytes_in: u64,
    bytes_out: u64,
    trace: Option<Box<str>>,
}

impl EndedCall {
    pub(super) fn of(request: &RequestEnd<'_>, method: &Method, at: Time) -> Self {
        fn cut(text: &str) -> &str {
            &text[..text.floor_char_boundary(LONGEST)]
        }
        Self {
            at,
            session: request.session_key.copied(),
            label: request.session.filter(|_| request.session_key.is_none()).map(|label| cut(label).into()),
            owner: request.principal.clone(),
            backend: request.endpoint.map(|name| ShortText::new(cut(name))),
            method: match method {
                Method::Other(name) => Method::Other(cut(name).into()),
                known => known.clone(),
            },
            name: request.name.map(|name| ShortText::new(cut(&public_name(Some(method), name)))),
            took: request.duration,
            outcome: request.outcome,
            has_failed: request.has_failed(),
            protocol: request.protocol,
            transport: request.transport,
            bytes_in: request.bytes_in,
            bytes_out: request.bytes_out,
            trace: request.trace.map(Box::from),
        }
    }

    /// When it ended.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// As operators see it.
    pub(super) fn row(&self) -> RecentCall {
        let (outcome, code, reason) = match self.outcome {
            Outcome::None => (CallOutcome::Gone, None, None),
            Outcome::Result => (CallOutcome::Result, None, None),
            Outcome::ToolError => (CallOutcome::ToolError, None, None),
            Outcome::Limited { reason } => (CallOutcome::Limited, None, Some(reason)),
            Outcome::Error { code, reason } => (CallOutcome::Error, Some(code), reason),
        };
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let short = |text: &Option<ShortText>| text.as_ref().map(|text| text.as_str().to_owned());
        RecentCall {
            at: self.at.0,
            label: match &self.session {
                Some(key) => key.label(),
                None => text(&self.label).unwrap_or_else(|| "-".to_owned()),
            },
            session: self.session.map(|key| key.hex()),
            owner: self.owner.name().map(str::to_owned),
            backend: short(&self.backend),
            method: self.method.as_str().to_owned(),
            tool: short(&self.name),
            ms: (self.took.as_secs_f64() * 1_000_000.0).round() / 1000.0,
            outcome,
            code,
            reason: reason.map(|reason| reason.as_str().to_owned()),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            trace: text(&self.trace),
        }
    }
}

impl RecentCalls {
    /// Adds calls in the order in which they ended.
    pub(super) fn extend(&self, ended: impl ExactSizeIterator<Item = EndedCall>) {
        let skipped = ended.len().saturating_sub(MOST);
        let mut calls = self.0.lock();
        for call in ended.skip(skipped) {
            if calls.len() == MOST {
                calls.pop_front();
            }
            calls.push_back(call);
        }
    }

    /// The newest first.
    pub(super) fn last(&self, limit: usize) -> Vec<RecentCall> {
        let mut calls: Vec<_> = self.0.lock().iter().rev().take(limit).cloned().collect();
        // Those of several threads come in pieces.
        calls.sort_by_key(|call| std::cmp::Reverse(call.at));
        calls.iter().map(EndedCall::row).collect()
    }
}
