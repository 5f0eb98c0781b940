//! Cache of the last cookie of a session. Most clients send the same cookie again and again, mostly in the same
//! `_meta`, so it need not be parsed again.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::{Era, RpcError};
use tenure_session::id::{Principal, SessionKey};
use tenure_session::state::{StateCache, StateId};

use crate::data::cookie_out::CookieEcho;
use crate::data::request::{DataRequest, RequestCookie};

/// A parsed cookie, and the place of the state that it names.
pub(super) struct KnownCookie {
    pub(super) cookie: RequestCookie,
    pub(super) owner: Principal,
    pub(super) place: Option<(StateId, SessionKey)>,
    /// What the last uses of that state left to reuse.
    pub(super) last: StateCache,
    /// The cookie that was written last.
    pub(super) echo: CookieEcho,
}

impl KnownCookie {
    pub(super) fn new(cookie: RequestCookie, owner: &Principal) -> Self {
        let id = StateId::from_cookie(&cookie.id);
        Self {
            place: id.map(|id| (id, id.key(owner))),
            cookie,
            owner: owner.clone(),
            last: StateCache::default(),
            echo: CookieEcho::default(),
        }
    }
}

/// The last cookie of a session.
#[derive(Default)]
pub(super) struct LastCookie(Mutex<Option<CachedCookie>>);

struct CachedCookie {
    /// The raw `_meta` that it came in; empty if that is too long to keep.
    meta: Box<[u8]>,
    /// The raw cookie.
    cookie: Box<[u8]>,
    known: Arc<KnownCookie>,
}

impl LastCookie {
    /// The cookie of a request; `None` if its `_meta` cannot be read.
    pub(super) fn read(
        &self,
        data_request: &DataRequest<'_>,
        owner: &Principal,
        max_bytes: usize,
    ) -> Option<Result<Option<Arc<KnownCookie>>, RpcError>> {
        let meta = data_request.meta.unwrap_or_default();
        let known = self.same(owner, |last| !meta.is_empty() && *last.meta == *meta);
        if known.is_some() {
            return Some(Ok(known));
        }
        let cookies = data_request.cookies(Era::Legacy)?;
        let only = cookies.only();
        let known = self.same(owner, |last| only == Some((last.known.cookie.dialect, &*last.cookie)));
        if known.is_some() {
            return Some(Ok(known));
        }
        let known = match cookies.read(max_bytes) {
            Ok(Some(cookie)) => Arc::new(KnownCookie::new(cookie, owner)),
            Ok(None) => return Some(Ok(None)),
            Err(error) => return Some(Err(error)),
        };
        // A cookie that carries its state is not cached: the next one differs.
        if let Some((_, cookie)) = only
            && known.cookie.state.is_none()
        {
            let meta = if meta.len() <= max_bytes { meta } else { &[] };
            *self.0.lock() =
                Some(CachedCookie { meta: meta.into(), cookie: cookie.into(), known: Arc::clone(&known) });
        }
        Some(Ok(Some(known)))
    }

    fn same(
        &self,
        owner: &Principal,
        is_same: impl FnOnce(&CachedCookie) -> bool,
    ) -> Option<Arc<KnownCookie>> {
        let last = self.0.lock();
        let last = last.as_ref().filter(|last| is_same(last) && last.known.owner == *owner);
        last.map(|last| Arc::clone(&last.known))
    }
}
