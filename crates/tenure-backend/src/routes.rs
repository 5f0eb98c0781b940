//! Several servers behind one process: which of them a session gets depends on the endpoint it was begun at.

use std::sync::Arc;

use hashbrown::HashMap;
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Open, Opened};
use tenure_session::{Reason, RpcError};

/// A backend for each endpoint.
pub struct Routes {
    main: Arc<dyn Backend>,
    named: HashMap<String, Arc<dyn Backend>>,
}

impl Routes {
    /// The backend of the endpoint without a name, and those of the endpoints with one.
    pub fn new(main: Arc<dyn Backend>, named: impl IntoIterator<Item = (String, Arc<dyn Backend>)>) -> Self {
        Self { main, named: named.into_iter().collect() }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.named.keys()).finish()
    }
}

impl Backend for Routes {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let backend = match open.route.name() {
            None => Some(&self.main),
            Some(name) => self.named.get(name),
        };
        match backend {
            Some(backend) => backend.open(open),
            // A session of a server that is not configured any more.
            None => Box::pin(std::future::ready(Err(RpcError::of(
                Reason::BackendUnavailable,
                "The server that the session was begun with is not configured",
            )))),
        }
    }
}
