//! Advertises data sessions to clients without a session, unless the server behind keeps data sessions itself.

use hashbrown::HashMap;
use parking_lot::RwLock;
use serde_json::json;
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::{RawJson, Reason, Reply};
use tenure_session::backend::{Call, Responder};
use tenure_session::id::Route;

use crate::bridge::discovery;
use crate::data::backend::DataShared;
use crate::data::request_modern::EXTENSION;

/// Which servers keep data sessions themselves, by endpoint. A client need not send a discovery first, so the first
/// request for which it matters sends one; every discovery that passes through updates the entry.
#[derive(Default)]
pub(super) struct Servers(RwLock<HashMap<Route, bool>>);

impl Servers {
    /// Whether the server of a call keeps data sessions itself. If the server cannot be asked, the answer is no.
    pub(super) async fn keep_their_own(&self, server: &dyn Responder, call: &Call) -> bool {
        let known = self.0.read().get(call.context.route()).copied();
        match known {
            Some(known) => known,
            // Boxed: this happens once, but its size would be part of every call's future.
            None => {
                let reply = Box::pin(server.respond(discovery(call))).await;
                self.learn(call.context.route(), &reply).unwrap_or(false)
            }
        }
    }

    /// Updates the entry of an endpoint from the answer to a discovery.
    pub(super) fn learn(&self, route: &Route, reply: &Reply) -> Option<bool> {
        let own = match reply {
            Ok(discovered) => advertises(object::text(discovered)),
            Err(error) if error.code() == i64::from(Reason::MethodNotFound.code()) => false,
            Err(_) => return None,
        };
        self.0.write().insert(route.clone(), own);
        Some(own)
    }
}

/// Whether a server declares that it keeps data sessions itself.
fn advertises(discovered: &str) -> bool {
    let member = |text: &str, name: &str| Object::read(text)?.get(name).map(str::to_owned);
    let extensions = member(discovered, "capabilities").and_then(|it| member(&it, "extensions"));
    extensions.and_then(|it| member(&it, EXTENSION)).is_some_and(|value| value != "null")
}

impl DataShared {
    /// The discovery result with our capability added; unchanged if it cannot be read.
    pub(super) fn advertise(&self, discovered: RawJson) -> RawJson {
        let offered = json!({ "features": self.policy.features, "required": self.demand() }).to_string();
        let with = |discovered: &RawJson| {
            let mut result = Object::read(object::text(discovered))?;
            let mut capabilities = Object::read(there(&result, "capabilities"))?;
            let mut extensions = Object::read(there(&capabilities, "extensions"))?;
            extensions.set(EXTENSION, offered);
            let extensions = extensions.write().into_owned();
            capabilities.set("extensions", extensions);
            if !self.kinds.is_empty() && there(&capabilities, "tools") == "{}" {
                capabilities.set("tools", "{}");
            }
            let capabilities = capabilities.write().into_owned();
            result.set("capabilities", capabilities);
            Some(RawJson::trusted(result.write().into_owned()))
        };
        with(&discovered).unwrap_or(discovered)
    }
}

/// A member that is an object; an absent or null member counts as `{}`.
fn there<'a>(object: &Object<'a>, name: &str) -> &'a str {
    object.get(name).filter(|value| *value != "null").unwrap_or("{}")
}
