//! Answers requests about tasks that are kept here. The server does not get them.

use std::sync::Arc;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::translate::tasks::EXTENSION;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RpcError};

use crate::backend::Call;
use crate::exchange::call::ActiveCall;
use crate::exchange::exchanges::ExchangesInner;
use crate::port::BoxFuture;
use crate::task::{TaskId, Tasks, Whose};

impl ExchangesInner {
    /// Passes a request to the server, or answers it here if it is about tasks that are kept here. A task that is kept
    /// here stays ours, even if the server keeps its own tasks by now. An unknown task may be the server's, if it keeps
    /// tasks.
    pub(super) fn respond(self: &Arc<Self>, work: &Arc<ActiveCall>, call: Call) -> BoxFuture<Reply> {
        match call.request.method {
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                let may_be_the_servers = self.responder.keeps_tasks(work.fanout.route());
                let tasks = self.tasks().filter(|_| !may_be_the_servers || looks_like_ours(&call.request));
                let Some(tasks) = tasks else { return self.respond_about_task(work, call) };
                let (inner, tasks, whose) = (Arc::clone(self), tasks.clone(), work.whose());
                let work = Arc::clone(work);
                Box::pin(async move {
                    match answer(&tasks, &whose, &call.request).await {
                        Err(error) if may_be_the_servers && error.reason() == Reason::TaskNotFound => {
                            // A server without tasks answers "method not found". The client supports tasks, so it
                            // gets our error instead.
                            match inner.respond_about_task(&work, call).await {
                                Err(said) if is_unknown_method(&said) => Err(error.to_rpc()),
                                reply => reply,
                            }
                        }
                        reply => reply.map_err(|error| error.to_rpc()),
                    }
                })
            }
            Method::Listen => match (Filter::read(call.request.params.as_ref()), self.tasks()) {
                (Ok(filter), Some(tasks)) if !filter.tasks.is_empty() => {
                    let (inner, work, tasks) = (Arc::clone(self), Arc::clone(work), tasks.clone());
                    Box::pin(async move { inner.listen(&work, &tasks, &filter.tasks, call).await })
                }
                (Ok(filter), None) if !filter.tasks.is_empty() => self.listen_to_tasks(work, call),
                _ => self.responder.respond(call),
            },
            _ => self.responder.respond(call),
        }
    }

    /// A listen that also watches tasks.
    async fn listen(&self, work: &ActiveCall, tasks: &Tasks, ids: &[String], mut call: Call) -> Reply {
        let watch = tasks.watch(work.whose(), ids).await.map_err(|error| error.to_rpc())?;
        if watch.ids().is_empty() && self.responder.keeps_tasks(work.fanout.route()) {
            return self.listen_to_tasks(work, call).await;
        }
        work.state.lock().watched = watch.ids();
        call.request.params = call.request.params.as_ref().map(without_tasks);
        let (context, id) = (call.context.clone(), call.request.id.clone());
        let feed = async {
            work.acknowledged().await;
            loop {
                for task in watch.next().await {
                    let params = notifications::to_modern(Some(&task), &id);
                    if let Err(error) = context.notify(&Method::TaskChanged, Some(&params)).await {
                        return Err(error.to_rpc());
                    }
                }
            }
        };
        tokio::pin!(feed);
        tokio::select! {
            reply = self.responder.respond(call) => {
                // A server without news does not know listens. We still report tasks.
                if work.state.lock().is_acknowledged || !reply.as_ref().is_err_and(is_unknown_method) {
                    return reply;
                }
            }
            failed = &mut feed => return failed,
        }
        let heard = Filter::default().acknowledgement(&id);
        context.notify(&Method::Acknowledged, Some(&heard)).await.map_err(|error| error.to_rpc())?;
        feed.await
    }
}

impl ActiveCall {
    /// Resolves when a listen has been acknowledged.
    async fn acknowledged(&self) {
        loop {
            let more = self.room.notified();
            tokio::pin!(more);
            // Registered before the check, so that no change is missed.
            more.as_mut().enable();
            if self.state.lock().is_acknowledged {
                return;
            }
            more.await;
        }
    }
}

/// Whether the server answered "method not found".
fn is_unknown_method(error: &RpcError) -> bool {
    error.code() == i64::from(Reason::MethodNotFound.code())
}

fn member<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    Object::read(object::text(request.params.as_ref()?))?.get(name)
}

/// Whether a request has a task id in our format.
fn looks_like_ours(request: &Request) -> bool {
    member(request, "taskId").and_then(object::unquoted).is_some_and(|id| TaskId::parse(&id).is_some())
}

async fn answer(tasks: &Tasks, whose: &Whose, request: &Request) -> Result<RawJson, Error> {
    let id = member(request, "taskId").and_then(object::unquoted);
    let id = id.ok_or_else(|| Error::new(Reason::InvalidParams, "taskId is missing"))?;
    match request.method {
        Method::TasksUpdate => {
            let responses =
                member(request, "inputResponses").filter(|responses| object::is_object(responses));
            let missing = || Error::new(Reason::InvalidParams, "inputResponses is missing, or no object");
            let responses = RawJson::trusted(responses.ok_or_else(missing)?.to_owned());
            tasks.update(whose, &id, &responses).await.map(|()| RawJson::EMPTY_OBJECT)
        }
        Method::TasksCancel => tasks.cancel(whose, &id).await.map(|()| RawJson::EMPTY_OBJECT),
        _ => tasks.get(whose, &id).await,
    }
}

/// Adds the tasks extension to an answer of `server/discover`.
pub(super) fn advertised(discovery: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(discovery)) else { return discovery.clone() };
    let mut capabilities = object.get("capabilities").and_then(Object::read).unwrap_or_else(object::nothing);
    let mut extensions =
        capabilities.get("extensions").and_then(Object::read).unwrap_or_else(object::nothing);
    extensions.set(EXTENSION, "{}");
    let extensions = extensions.write().into_owned();
    capabilities.set("extensions", extensions);
    let capabilities = capabilities.write().into_owned();
    object.set("capabilities", capabilities);
    RawJson::trusted(object.write().into_owned())
}

/// The params of a listen without our tasks, for the server.
fn without_tasks(params: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(params)) else { return params.clone() };
    let Some(mut wanted) = object.get("notifications").and_then(Object::read) else { return params.clone() };
    wanted.remove("taskIds");
    let wanted = wanted.write().into_owned();
    object.set("notifications", wanted);
    RawJson::trusted(object.write().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_stands_beside_what_the_server_says() {
        let table = [
            (
                r#"{"capabilities":{}}"#,
                r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#,
            ),
            (
                r#"{ "capabilities": {"tools":{}, "extensions":{"a/b":{}}},"instructions":"x" }"#,
                r#"{ "capabilities": {"tools":{}, "extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}},"instructions":"x" }"#,
            ),
            ("{}", r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#),
        ];
        for (said, expected) in table {
            assert_eq!(object::text(&advertised(&RawJson::trusted(said))), expected);
        }
    }

    #[test]
    fn the_server_is_not_asked_for_tasks_that_are_not_its_own() {
        let params = RawJson::trusted(r#"{"notifications":{"taskIds":["a"]},"_meta":{"x":1}}"#);
        assert_eq!(object::text(&without_tasks(&params)), r#"{"notifications":{},"_meta":{"x":1}}"#);
    }
}
