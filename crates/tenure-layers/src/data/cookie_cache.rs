//! Cookies, and the states that they name. What the last one said is remembered: most clients send the same again and
//! again, and most of those with the same around it.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::RpcError;
use tenure_session::id::{Principal, SessionKey};
use tenure_session::state::{Last, StateId};

use crate::data::cookie_out::Echo;
use crate::data::request::{Asked, Cookie};

/// A cookie, and where the state is that it names.
pub(super) struct Known {
    pub(super) cookie: Cookie,
    pub(super) owner: Principal,
    pub(super) place: Option<(StateId, SessionKey)>,
    /// What was made of that state the last time.
    pub(super) last: Last,
    /// The cookie that went back the last time.
    pub(super) echo: Echo,
}

impl Known {
    pub(super) fn new(cookie: Cookie, owner: &Principal) -> Self {
        let id = StateId::from_cookie(&cookie.id);
        Self {
            place: id.map(|id| (id, id.key(owner))),
            cookie,
            owner: owner.clone(),
            last: Last::default(),
            echo: Echo::default(),
        }
    }
}

/// The cookie of a session that came last.
#[derive(Default)]
pub(super) struct CameLast(Mutex<Option<Came>>);

struct Came {
    /// What it stood in, unless that is too long to be kept.
    meta: Box<[u8]>,
    /// As it stood there.
    cookie: Box<[u8]>,
    known: Arc<Known>,
}

impl CameLast {
    /// The cookie of a request; `None` if what it stands in makes no sense.
    pub(super) fn read(
        &self,
        asked: &Asked<'_>,
        owner: &Principal,
        max_bytes: usize,
    ) -> Option<Result<Option<Arc<Known>>, RpcError>> {
        let meta = asked.meta.unwrap_or_default();
        let known = self.same(owner, |last| !meta.is_empty() && *last.meta == *meta);
        if known.is_some() {
            return Some(Ok(known));
        }
        let cookies = asked.cookies()?;
        let only = cookies.only();
        let known = self.same(owner, |last| only == Some((last.known.cookie.dialect, &*last.cookie)));
        if known.is_some() {
            return Some(Ok(known));
        }
        let known = match cookies.read(max_bytes) {
            Ok(Some(cookie)) => Arc::new(Known::new(cookie, owner)),
            Ok(None) => return Some(Ok(None)),
            Err(error) => return Some(Err(error)),
        };
        // One that carries its state is another the next time.
        if let Some((_, cookie)) = only
            && known.cookie.state.is_none()
        {
            let meta = if meta.len() <= max_bytes { meta } else { &[] };
            *self.0.lock() =
                Some(Came { meta: meta.into(), cookie: cookie.into(), known: Arc::clone(&known) });
        }
        Some(Ok(Some(known)))
    }

    fn same(&self, owner: &Principal, is_same: impl FnOnce(&Came) -> bool) -> Option<Arc<Known>> {
        let last = self.0.lock();
        let last = last.as_ref().filter(|last| is_same(last) && last.known.owner == *owner);
        last.map(|last| Arc::clone(&last.known))
    }
}
