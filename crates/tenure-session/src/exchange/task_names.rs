//! The ids of tasks that a server behind keeps, as callers get them.
//!
//! Such a server mostly takes all callers for one, so every caller that knew an id could use the task. Callers with a name get ids that are
//! sealed for them: an id of another caller, or of another endpoint, does not open, and is answered like an unknown one.
//! Callers without a name cannot be told apart, and get the ids as the server wrote them.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Method, RawJson, Reply};

use crate::backend::Call;
use crate::exchange::call::ActiveCall;
use crate::exchange::exchanges::ExchangesInner;
use crate::exchange::finish::set;
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::seal::Seal;
use crate::task::task_not_found;

/// The member of params and results that names a task.
const ID: &str = "taskId";

/// The names that one caller at one endpoint has for tasks of the server behind.
struct TaskNames {
    seal: Arc<dyn Seal>,
    bound: Vec<u8>,
}

/// A task of the server behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedTask {
    /// Its id, as the server wrote it.
    id: String,
    /// The name that the caller has for it.
    name: String,
}

impl TaskNames {
    /// `None` for a caller without a name.
    fn of(seal: &Arc<dyn Seal>, principal: &Principal, route: &Route) -> Option<Self> {
        let mut bound = b"tenure task of a server\0".to_vec();
        // Each text is prefixed with its presence and length, so that different texts never give the same bytes.
        for text in [Some(principal.name()?), route.name()] {
            bound.push(u8::from(text.is_some()));
            let text = text.unwrap_or_default();
            bound.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bound.extend_from_slice(text.as_bytes());
        }
        Some(Self { seal: Arc::clone(seal), bound })
    }

    fn name(&self, id: &str) -> Option<String> {
        self.seal.seal(&self.bound, id.as_bytes()).map(|sealed| URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The task with this name, if the name was given to this caller.
    fn task(&self, name: &str) -> Option<NamedTask> {
        let sealed = URL_SAFE_NO_PAD.decode(name).ok()?;
        let id = String::from_utf8(self.seal.open(&self.bound, &sealed)?).ok()?;
        Some(NamedTask { id, name: name.to_owned() })
    }
}

impl ExchangesInner {
    /// The names of the server's tasks for the caller of a call; `None` if they are the ids themselves.
    fn task_names(&self, work: &ActiveCall) -> Option<TaskNames> {
        let route = work.fanout.route();
        self.responder.keeps_tasks(route).then(|| TaskNames::of(&self.seal, &work.caller.principal, route))?
    }

    /// Gives the task that the server made of a call the name that its caller may know.
    pub(super) fn with_task_name(&self, work: &ActiveCall, created: RawJson) -> RawJson {
        let name = || {
            let id = task_id(&created)?;
            self.task_names(work)?.name(&id)
        };
        match name() {
            Some(name) => set(&created, ID, &object::quoted(&name)),
            None => created,
        }
    }

    /// Passes a request about a task on to the server.
    pub(super) fn respond_about_task(&self, work: &ActiveCall, mut call: Call) -> BoxFuture<Reply> {
        let named = call.request.params.as_ref().and_then(task_id);
        let (Some(names), Some(name)) = (self.task_names(work), named) else {
            return self.responder.respond(call);
        };
        let Some(task) = names.task(&name) else {
            return Box::pin(std::future::ready(Err(task_not_found().to_rpc())));
        };
        call.request.params = call.request.params.map(|params| set(&params, ID, &object::quoted(&task.id)));
        let reply = self.responder.respond(call);
        Box::pin(async move {
            let result = reply.await?;
            let is_named = task_id(&result).is_some_and(|id| id == task.id);
            Ok(if is_named { set(&result, ID, &object::quoted(&task.name)) } else { result })
        })
    }

    /// Passes a listen on to the server, which watches those of its tasks that the caller may know.
    pub(super) fn listen_to_tasks(&self, work: &ActiveCall, mut call: Call) -> BoxFuture<Reply> {
        let (Some(names), Ok(filter)) = (self.task_names(work), Filter::read(call.request.params.as_ref()))
        else {
            return self.responder.respond(call);
        };
        let tasks: Vec<NamedTask> = filter.tasks.iter().filter_map(|name| names.task(name)).collect();
        let ids = RawJson::of(&tasks.iter().map(|task| &task.id).collect::<Vec<_>>());
        call.request.params = call.request.params.map(|params| with_tasks(&params, &ids));
        work.state.lock().named_tasks = Some(tasks);
        self.responder.respond(call)
    }
}

impl ActiveCall {
    /// The params of a notification to a listen, with the names of tasks that the caller knows. `None`: it is about a task that
    /// the caller did not ask for.
    pub(super) fn with_task_names(&self, method: &Method, params: RawJson) -> Option<RawJson> {
        let state = self.state.lock();
        let Some(tasks) = &state.named_tasks else { return Some(params) };
        let name = |id: &str| tasks.iter().find(|task| task.id == id).map(|task| task.name.as_str());
        match method {
            Method::TaskChanged => {
                let id = task_id(&params)?;
                Some(set(&params, ID, &object::quoted(name(&id)?)))
            }
            Method::Acknowledged => {
                let Ok(heard) = Filter::read(Some(&params)) else { return Some(params) };
                if heard.tasks.is_empty() {
                    return Some(params);
                }
                let names: Vec<_> = heard.tasks.iter().filter_map(|id| name(id)).collect();
                Some(with_tasks(&params, &RawJson::of(&names)))
            }
            _ => Some(params),
        }
    }
}

/// The id of a task in params or in a result.
fn task_id(json: &RawJson) -> Option<String> {
    let object = Object::read(object::text(json))?;
    Some(object::unquoted(object.get(ID)?)?.into())
}

/// The params of a listen, or of its acknowledgement, with these tasks.
fn with_tasks(params: &RawJson, ids: &RawJson) -> RawJson {
    match object::set_at(object::text(params), &["notifications", "taskIds"], object::text(ids)) {
        Some(text) => object::kept(params, text),
        None => params.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binds by writing the binding in front, which is enough to test it.
    struct Plain;

    impl Seal for Plain {
        fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
            Some([bound, plain].concat())
        }

        fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
            sealed.strip_prefix(bound).map(<[u8]>::to_vec)
        }
    }

    #[test]
    fn a_name_is_good_for_its_caller_at_its_endpoint_alone() {
        let seal: Arc<dyn Seal> = Arc::new(Plain);
        let names = |who: &str, route: Route| TaskNames::of(&seal, &Principal::named(who), &route).unwrap();
        let alice = names("alice", Route::MAIN);
        let name = alice.name("task-1").unwrap();
        assert_eq!(alice.task(&name).map(|task| task.id).as_deref(), Some("task-1"));
        for other in [
            names("bob", Route::MAIN),
            names("alice", Route::named("files")),
            names("", Route::named("alice")),
        ] {
            assert_eq!(other.task(&name), None);
        }
        assert_eq!(alice.task("task-1"), None, "the server's own id is no name");
        assert!(TaskNames::of(&seal, &Principal::ANONYMOUS, &Route::MAIN).is_none());
    }
}
