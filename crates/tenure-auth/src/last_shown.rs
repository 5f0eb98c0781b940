//! The credentials that a connection showed last, with their verdict: a client that keeps its connection shows the same ones
//! with each request, and then costs a comparison, and no hash and no look-up.
//!
//! In: credentials whose verdict was found. Out: the same verdict for the same bytes, at the same resource, from the same
//! authenticator. Whether it still counts is checked as for any other, so nothing is believed for longer. What a proof or a
//! certificate has to show is checked on every request too. Only good credentials are kept, so a stranger cannot make a
//! connection hold any, and only while the connection lives: its read buffer has held them before.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::generation::Generation;
use crate::resource::ProtectedResource;
use crate::verdicts::Verdict;

/// Longer credentials are not kept: there may be very many connections.
const LONGEST: usize = 2 << 10;

/// This many requests in a row with other credentials replace those that are kept. One request alone is worth no copy, and a
/// proxy may send requests of many users over a connection.
const OTHERS: u8 = 2;

/// What a connection showed last. It belongs to one connection.
#[derive(Default)]
pub struct LastShown(Mutex<Shown>);

#[derive(Default)]
struct Shown {
    credentials: Vec<u8>,
    verdict: Option<ShownVerdict>,
    /// Requests with other credentials since those that are kept were shown.
    others: u8,
}

struct ShownVerdict {
    /// Names the authenticator, which has a generation of its own.
    by: Arc<Generation>,
    resource: Box<str>,
    verdict: Arc<Verdict>,
}

impl LastShown {
    /// The verdict about these credentials, if they were shown last.
    pub(crate) fn verdict(
        &self,
        by: &Arc<Generation>,
        resource: &ProtectedResource,
        credentials: &str,
    ) -> Option<Arc<Verdict>> {
        let mut shown = self.0.lock();
        let kept = shown.verdict.as_ref()?;
        if !Arc::ptr_eq(&kept.by, by)
            || *kept.resource != *resource.uri()
            || !is_same(&shown.credentials, credentials.as_bytes())
        {
            return None;
        }
        let verdict = Arc::clone(&kept.verdict);
        shown.others = 0;
        Some(verdict)
    }

    /// Notes a verdict that was not found here.
    pub(crate) fn saw(
        &self,
        by: &Arc<Generation>,
        resource: &ProtectedResource,
        credentials: &str,
        verdict: &Arc<Verdict>,
    ) {
        if verdict.outcome.is_err() || credentials.len() > LONGEST {
            return;
        }
        let mut shown = self.0.lock();
        shown.others += 1;
        if shown.others < OTHERS {
            return;
        }
        shown.others = 0;
        shown.credentials.clear();
        shown.credentials.extend_from_slice(credentials.as_bytes());
        let (by, verdict) = (Arc::clone(by), Arc::clone(verdict));
        shown.verdict = Some(ShownVerdict { by, resource: resource.uri().into(), verdict });
    }
}

/// It would show the credentials.
impl fmt::Debug for LastShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastShown")
    }
}

/// Compares without a hint, by its time, where two texts begin to differ: behind a proxy several users share a connection, and
/// one of them could try texts against the credentials of another.
fn is_same(kept: &[u8], shown: &[u8]) -> bool {
    // The loop has no way out, and the compiler cannot know that nothing but zero counts.
    kept.len() == shown.len()
        && black_box(kept.iter().zip(shown).fold(0, |differs, (kept, shown)| differs | (kept ^ shown))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{CredentialKind, Identity};
    use crate::refusal::{AuthRefusal, TokenFault};
    use crate::time::UnixSeconds;
    use crate::verdicts::{Good, Outcome};

    fn verdict(outcome: Outcome) -> Arc<Verdict> {
        Arc::new(Verdict { outcome, until: UnixSeconds(100), generation: 0 })
    }

    fn good(name: &str) -> Arc<Verdict> {
        verdict(Ok(Good::new(Identity::new("corp", name, CredentialKind::Token))))
    }

    #[test]
    fn only_the_same_bytes_at_the_same_place_have_the_verdict() {
        let (here, there) = (ProtectedResource::keys_only("/mcp"), ProtectedResource::keys_only("/mcp/a"));
        let (ours, other) = (Arc::<Generation>::default(), Arc::<Generation>::default());
        let (last, alice) = (LastShown::default(), good("alice"));
        last.saw(&ours, &here, "token-of-alice", &alice);
        assert!(last.verdict(&ours, &here, "token-of-alice").is_none(), "one request is worth no copy");
        last.saw(&ours, &here, "token-of-alice", &alice);
        let found = last.verdict(&ours, &here, "token-of-alice");
        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, &alice)));
        for text in ["token-of-alicf", "Token-of-alice", "token-of-alic", "token-of-alice1", ""] {
            assert!(last.verdict(&ours, &here, text).is_none(), "{text}");
        }
        assert!(last.verdict(&ours, &there, "token-of-alice").is_none(), "another resource");
        assert!(last.verdict(&other, &here, "token-of-alice").is_none(), "another authenticator");
    }

    #[test]
    fn credentials_that_come_again_replace_those_that_are_kept() {
        let (here, by, last) =
            (ProtectedResource::keys_only("/mcp"), Arc::<Generation>::default(), LastShown::default());
        let (alice, bob) = (good("alice"), good("bob"));
        let whose = |token: &str| last.verdict(&by, &here, token);
        for _ in 0..2 {
            last.saw(&by, &here, "a", &alice);
        }
        last.saw(&by, &here, "b", &bob);
        assert!(whose("a").is_some() && whose("b").is_none());
        last.saw(&by, &here, "b", &bob);
        assert!(whose("b").is_none(), "alice was here in between");
        last.saw(&by, &here, "b", &bob);
        assert!(whose("a").is_none() && whose("b").is_some_and(|found| Arc::ptr_eq(&found, &bob)));
    }

    #[test]
    fn neither_refusals_nor_very_long_credentials_are_kept() {
        let (here, by, last) =
            (ProtectedResource::keys_only("/mcp"), Arc::<Generation>::default(), LastShown::default());
        let long = "x".repeat(LONGEST + 1);
        let refused = verdict(Err(AuthRefusal::Invalid(TokenFault::Expired)));
        for _ in 0..4 {
            last.saw(&by, &here, "bad", &refused);
            last.saw(&by, &here, &long, &good("alice"));
        }
        assert!(last.verdict(&by, &here, "bad").is_none() && last.verdict(&by, &here, &long).is_none());
    }
}
