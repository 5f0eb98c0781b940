//! Several servers behind one process: the endpoint of a request or session decides which of them serves it.

use std::sync::Arc;

use hashbrown::HashMap;
use tenure_protocol::{Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Open, Opened, Responder};
use tenure_session::call::Fanout;
use tenure_session::port::BoxFuture;
use tenure_session::{Principal, Route};

/// A backend for each endpoint, and a responder for each.
pub struct Routes {
    main: RoutedServer,
    named: HashMap<String, RoutedServer>,
}

#[derive(Clone)]
struct RoutedServer {
    backend: Arc<dyn Backend>,
    responder: Arc<dyn Responder>,
}

impl Routes {
    /// `main` serves the endpoint without a name, `named` the endpoints with one. `bridge` makes a responder for a
    /// backend that has none.
    pub fn new(
        main: Arc<dyn Backend>,
        named: impl IntoIterator<Item = (String, Arc<dyn Backend>)>,
        bridge: impl Fn(Arc<dyn Backend>) -> Arc<dyn Responder>,
    ) -> Self {
        let server = |backend: Arc<dyn Backend>| {
            let responder = Arc::clone(&backend).responder();
            let responder = responder.unwrap_or_else(|| bridge(Arc::clone(&backend)));
            RoutedServer { backend, responder }
        };
        let named = named.into_iter().map(|(name, backend)| (name, server(backend)));
        Self { named: named.collect(), main: server(main) }
    }

    fn at(&self, route: &Route) -> Option<&RoutedServer> {
        match route.name() {
            None => Some(&self.main),
            Some(name) => self.named.get(name),
        }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.named.keys()).finish()
    }
}

impl Backend for Routes {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        match self.at(&open.route) {
            Some(server) => server.backend.open(open),
            // The session's server is no longer configured.
            None => Box::pin(std::future::ready(Err(RpcError::of(
                Reason::BackendUnavailable,
                "The server that the session was begun with is not configured",
            )))),
        }
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::new(Responders(self)))
    }
}

/// The responders of all endpoints.
struct Responders(Arc<Routes>);

impl Responder for Responders {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        match self.0.at(call.context.route()) {
            Some(server) => server.responder.respond(call),
            None => Box::pin(std::future::ready(Err(RpcError::of(
                Reason::BackendUnavailable,
                "There is no server at this endpoint",
            )))),
        }
    }

    // A server that seals its own request states gets them back unchanged. States that the runtime sealed are still
    // opened, so both kinds of server can be behind one process.
    fn keeps_request_states(&self) -> bool {
        let servers = std::iter::once(&self.0.main).chain(self.0.named.values());
        servers.into_iter().any(|server| server.responder.keeps_request_states())
    }

    fn keeps_tasks(&self, route: &Route) -> bool {
        self.0.at(route).is_none_or(|server| server.responder.keeps_tasks(route))
    }

    fn forget(&self, principal: &Principal) {
        for server in std::iter::once(&self.0.main).chain(self.0.named.values()) {
            server.responder.forget(principal);
        }
    }

    fn close(&self) -> BoxFuture<()> {
        let servers = std::iter::once(&self.0.main).chain(self.0.named.values());
        let ends: Vec<_> = servers.map(|server| server.responder.close()).collect();
        Box::pin(async move { drop(futures_util::future::join_all(ends).await) })
    }

    fn begin(&self, fanout: Fanout) {
        for (name, server) in &self.0.named {
            server.responder.begin(fanout.on(Route::named(name)));
        }
        self.0.main.responder.begin(fanout);
    }
}
