//! Advertises data sessions to clients of both eras, unless the server behind keeps data sessions itself.

use hashbrown::HashMap;
use parking_lot::RwLock;
use serde_json::json;
use tenure_protocol::json::{object, scan};
use tenure_protocol::{Era, RawJson, Reason, Reply};
use tenure_session::backend::{Call, Responder};
use tenure_session::id::Route;

use crate::bridge::discovery;
use crate::data::path::DataShared;

pub(super) use tenure_protocol::data_session::extension::EXTENSION;

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
            Ok(discovered) => keeps_its_own(Era::Modern, discovered),
            Err(error) if error.code() == i64::from(Reason::MethodNotFound.code()) => false,
            Err(_) => return None,
        };
        self.0.write().insert(route.clone(), own);
        Some(own)
    }
}

/// Where servers declare data sessions in their capabilities.
fn places(era: Era) -> &'static [&'static [&'static str]] {
    match era {
        Era::Legacy => &[&["capabilities", "experimental", "session"], &["capabilities", "sessions"]],
        Era::Modern => &[&["capabilities", "extensions", EXTENSION]],
    }
}

/// Whether a server declares that it keeps data sessions itself, in its answer to `initialize` or to a discovery.
pub(super) fn keeps_its_own(era: Era, result: &RawJson) -> bool {
    let declares =
        |place: &&[&str]| scan::at(object::text(result), place).is_some_and(|value| value != "null");
    places(era).iter().any(declares)
}

impl DataShared {
    /// The answer to `initialize` or to a discovery with our capabilities added; unchanged if it cannot be read.
    pub(super) fn advertise(&self, era: Era, result: RawJson) -> RawJson {
        const TOOLS: [&str; 2] = ["capabilities", "tools"];
        let mut offered = json!({ "features": self.policy.features, "required": self.demand() });
        if let (Era::Legacy, Some(version)) = (era, self.policy.version) {
            offered["version"] = version.into();
        }
        // The first place says what is offered; the draft's capability has no members.
        let offered = [offered.to_string(), "{}".to_owned()];
        let with = |text: &str| {
            let mut text = text.to_owned();
            for (place, offered) in places(era).iter().zip(&offered) {
                text = object::set_at(&text, place, offered)?.into_owned();
            }
            if !self.kinds.is_empty() && scan::at(&text, &TOOLS).is_none_or(|tools| tools == "null") {
                text = object::set_at(&text, &TOOLS, "{}")?.into_owned();
            }
            Some(RawJson::trusted(text))
        };
        with(object::text(&result)).unwrap_or(result)
    }
}
