//! The greeting: finds out the era of a server, its name and the sessions that it offers.
//!
//! `server/discover` is sent first, and a modern server answers it. After any other answer, or after silence,
//! `initialize` is sent. rmcp can do that too, but it waits ten seconds for a silent program, and if the program was
//! only slow to start, rmcp then takes its late answer for an error. So the greeting is done here, and the client
//! above gets its answer from memory.

use std::time::Duration;

use rmcp::{
    RoleClient,
    model::{
        ClientConfig, ClientJsonRpcMessage, ClientRequest, ClientResult, DiscoverRequest,
        DiscoverRequestParams, DiscoverResult, ErrorData, GetMeta as _, InitializeRequest, InitializeResult,
        JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerRequest,
        ServerResult,
    },
    service::ClientInitializeError,
    transport::Transport,
};
use serde_json::{Map, Value, json};
use tenure_protocol::Era;
use tenure_protocol::keys::CAPABILITIES;
use tenure_protocol::translate::codes::{HEADER_MISMATCH, MISSING_CAPABILITY, VERSION_NOT_SERVED};
use tokio::time::Instant;

use super::{SessionTransport, engine::Engine, options::EraChoice};
use crate::dialect::{EXTENSION, Offer, Offers};

/// How long a program may be silent before it also gets `initialize`. It may still answer the first greeting.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// The most messages of a server that are kept before its answer to the greeting; further ones are dropped.
const MAX_EARLY: usize = 64;

/// Why a server could not be greeted.
pub(crate) struct Ungreeted {
    pub(crate) error: ClientInitializeError,
    /// Whether it failed at `server/discover`, a method that the server may not know.
    pub(crate) while_probing: bool,
}

/// The conclusion from the answer to `server/discover`.
enum DiscoveryOutcome {
    Modern(Box<DiscoverResult>),
    Legacy,
    /// The server is modern, but refuses this client.
    Refused(Box<ClientInitializeError>),
}

/// The answers to the two greetings, as far as they have come.
#[derive(Default)]
struct GreetingAnswers {
    discovered: Option<Result<ServerResult, ErrorData>>,
    initialized: Option<Result<ServerResult, ErrorData>>,
    early: usize,
}

impl<T: Transport<RoleClient> + 'static> SessionTransport<T> {
    /// Greets the server and finds out its era.
    pub(crate) async fn greet(&mut self, info: &ClientConfig) -> Result<Era, Ungreeted> {
        let eras = self.engine.options.eras;
        let mut answers = GreetingAnswers::default();
        if eras != EraChoice::Legacy {
            let probing = self.probe(info, &mut answers, eras).await;
            probing.map_err(|error| Ungreeted { error, while_probing: eras == EraChoice::Either })?;
            match answers.discovered.clone().map(judge) {
                Some(DiscoveryOutcome::Modern(result)) => return Ok(self.is_modern(*result, info)),
                Some(DiscoveryOutcome::Refused(error)) => {
                    return Err(Ungreeted { error: *error, while_probing: false });
                }
                Some(DiscoveryOutcome::Legacy) | None => {}
            }
        }
        self.initialize(info, &mut answers).await.map_err(|error| Ungreeted { error, while_probing: false })
    }

    /// Sends `server/discover`. If only the modern era is allowed, any other answer is an error.
    async fn probe(
        &mut self,
        info: &ClientConfig,
        answers: &mut GreetingAnswers,
        eras: EraChoice,
    ) -> Result<(), ClientInitializeError> {
        let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
        discover.extensions.insert(meta_of(info));
        self.say(ClientRequest::DiscoverRequest(discover), discover_id(), "send server/discover").await?;
        let answered = |answers: &GreetingAnswers| answers.discovered.is_some();
        if eras == EraChoice::Either {
            // Over HTTP the answer is there as soon as the request is sent; only a program can be silent.
            return match tokio::time::timeout(PROBE_WITHIN, self.listen(answers, answered)).await {
                Ok(heard) => heard,
                Err(_silent) => Ok(()),
            };
        }
        self.listen(answers, answered).await?;
        match answers.discovered.clone().map(judge) {
            Some(DiscoveryOutcome::Legacy) => Err(match answers.discovered.take() {
                Some(Err(error)) => ClientInitializeError::JsonRpcError(error),
                answer => ClientInitializeError::ExpectedInitResult(answer.and_then(Result::ok)),
            }),
            _ => Ok(()),
        }
    }

    async fn initialize(
        &mut self,
        info: &ClientConfig,
        answers: &mut GreetingAnswers,
    ) -> Result<Era, ClientInitializeError> {
        let mut params = info.clone();
        if !params.protocol_version.has_initialize() {
            params.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        }
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        self.say(request, initialize_id(), "send initialize").await?;
        self.listen(answers, |answers| answers.initialized.is_some()).await?;
        match answers.initialized.take() {
            Some(Ok(ServerResult::InitializeResult(result))) => {
                self.engine.is_legacy(&result);
                self.engine.greeting = Some(ServerResult::InitializeResult(result));
                Ok(Era::Legacy)
            }
            Some(Ok(other)) => Err(ClientInitializeError::ExpectedInitResult(Some(other))),
            // A modern program that was slow to start answers the first greeting now, or has just done so.
            Some(Err(error)) => {
                if self.engine.options.eras == EraChoice::Either && answers.discovered.is_none() {
                    let answer = self.listen(answers, |answers| answers.discovered.is_some());
                    // If the program exits or stays silent, the error of `initialize` counts.
                    drop(tokio::time::timeout(PROBE_WITHIN, answer).await);
                }
                match answers.discovered.take().map(judge) {
                    Some(DiscoveryOutcome::Modern(result)) => Ok(self.is_modern(*result, info)),
                    Some(DiscoveryOutcome::Refused(error)) => Err(*error),
                    Some(DiscoveryOutcome::Legacy) | None => Err(ClientInitializeError::JsonRpcError(error)),
                }
            }
            None => Err(ClientInitializeError::ConnectionClosed("initialize response".to_owned())),
        }
    }

    fn is_modern(&mut self, result: DiscoverResult, info: &ClientConfig) -> Era {
        self.engine.tap.close();
        self.engine.is_modern(&result, &meta_of(info));
        self.engine.greeting = Some(ServerResult::DiscoverResult(result));
        Era::Modern
    }

    async fn say(
        &mut self,
        request: ClientRequest,
        id: RequestId,
        doing: &'static str,
    ) -> Result<(), ClientInitializeError> {
        let sent = self.inner.send(ClientJsonRpcMessage::request(request, id)).await;
        sent.map_err(|error| ClientInitializeError::transport::<T>(error, doing))
    }

    /// Receives messages until the awaited answer has come. Notifications are delivered to the client later.
    async fn listen(
        &mut self,
        answers: &mut GreetingAnswers,
        enough: impl Fn(&GreetingAnswers) -> bool,
    ) -> Result<(), ClientInitializeError> {
        while !enough(answers) {
            let Some(message) = self.inner.receive().await else {
                return Err(ClientInitializeError::ConnectionClosed("answer to the greeting".to_owned()));
            };
            match message {
                JsonRpcMessage::Response(response) => answers.take(Some(&response.id), Ok(response.result)),
                JsonRpcMessage::Error(error) => answers.take(error.id.as_ref(), Err(error.error)),
                JsonRpcMessage::Request(request)
                    if matches!(request.request, ServerRequest::PingRequest(_)) =>
                {
                    let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), request.id);
                    let sent = self.inner.send(pong).await;
                    sent.map_err(|error| ClientInitializeError::transport::<T>(error, "answer a ping"))?;
                }
                JsonRpcMessage::Notification(_) if answers.early < MAX_EARLY => {
                    answers.early += 1;
                    self.engine.deliver(message);
                }
                JsonRpcMessage::Notification(_) | JsonRpcMessage::Request(_) => {
                    tracing::debug!("dropped a message that came before the answer to the greeting");
                }
            }
        }
        Ok(())
    }
}

impl GreetingAnswers {
    fn take(&mut self, id: Option<&RequestId>, answer: Result<ServerResult, ErrorData>) {
        // An error without an id belongs to the last request.
        if id == Some(&initialize_id()) || (id.is_none() && self.discovered.is_some()) {
            self.initialized = Some(answer);
        } else if id.is_none() || id == Some(&discover_id()) {
            self.discovered = Some(answer);
        } else {
            tracing::debug!("dropped an answer to a request that was not sent");
        }
    }
}

impl Engine {
    /// Takes over the answer to `initialize`: the server is of the legacy era.
    fn is_legacy(&mut self, result: &InitializeResult) {
        // rmcp drops capabilities that it does not know, so those that the tap has read come first.
        let offers = self
            .tap
            .seen()
            .unwrap_or_else(|| Offers::read(&serde_json::to_value(&result.capabilities).unwrap_or_default()));
        let offer = offers.choose(self.options.prefer).or_else(|| self.options.assume.map(Offer::of));
        self.introduce(Some(&result.server_info.name), offer);
        self.modern_meta = None;
    }

    /// Takes over the answer to `server/discover`: the server is modern. `meta` is the `_meta` of this client's
    /// requests.
    fn is_modern(&mut self, result: &DiscoverResult, meta: &RequestMetaObject) {
        let offers = Offers::read(&serde_json::to_value(&result.capabilities).unwrap_or_default());
        let name = result.server_info().map(|info| info.name);
        self.introduce(name.as_deref(), offers.without_transport_session());
        self.modern_meta = Some(meta.0.0.clone());
    }

    /// A program that uses the transport without [`ConnectedClient`](crate::ConnectedClient) greets by itself. Our own
    /// requests need the `_meta` of its `server/discover`.
    pub(super) fn note_discovery(&mut self, request: &ClientRequest) {
        if let ClientRequest::DiscoverRequest(_) = request {
            let mut meta = request.get_meta().clone();
            declare(&mut meta.0.0);
            self.discovery_meta = Some(meta);
        }
    }

    /// Reads the server's answer to the greeting of such a program.
    pub(super) fn overhear(&mut self, result: &ServerResult, now: Instant) {
        match result {
            ServerResult::InitializeResult(result) => self.is_legacy(result),
            ServerResult::DiscoverResult(result) if self.modern_meta.is_none() => {
                let ours = result.supported_versions.contains(&ProtocolVersion::V_2026_07_28);
                if let Some(meta) = self.discovery_meta.take().filter(|_| ours) {
                    self.is_modern(result, &meta);
                    self.make_first_session(now);
                }
            }
            _ => {}
        }
    }

    fn introduce(&mut self, name: Option<&str>, offer: Option<Offer>) {
        self.offer = offer;
        self.holder.introduce(name, self.offer.as_ref().map(|offer| offer.dialect));
    }

    /// Answers the greeting of the client above with the server's answer to ours.
    pub(super) fn is_answered_by_greeting(
        &mut self,
        id: &RequestId,
        request: &ClientRequest,
        now: Instant,
    ) -> bool {
        let greeting = match request {
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_) => self.greeting.take(),
            _ => None,
        };
        let Some(result) = greeting else { return false };
        let is_modern = matches!(result, ServerResult::DiscoverResult(_));
        self.deliver(ServerJsonRpcMessage::response(result, id.clone()));
        if is_modern {
            // The modern era has no `initialized` notification: the client may send requests from here on.
            self.make_first_session(now);
        }
        true
    }

    /// Declares the extension for data sessions in a modern request, so that the program need not do it.
    pub(super) fn declare_extension(&self, request: &mut ClientRequest) {
        if self.modern_meta.is_some() {
            declare(&mut request.get_meta_mut().0.0);
        }
    }
}

fn judge(answer: Result<ServerResult, ErrorData>) -> DiscoveryOutcome {
    let ours = ProtocolVersion::V_2026_07_28;
    let unsupported = |supported: Vec<ProtocolVersion>| {
        if supported.iter().any(ProtocolVersion::has_initialize) {
            return DiscoveryOutcome::Legacy;
        }
        DiscoveryOutcome::Refused(Box::new(ClientInitializeError::NoCompatibleProtocolVersion {
            client_supported: vec![ProtocolVersion::LATEST_WITH_INITIALIZE, ours.clone()],
            server_supported: supported,
        }))
    };
    match answer {
        Ok(ServerResult::DiscoverResult(result)) if result.supported_versions.contains(&ours) => {
            DiscoveryOutcome::Modern(Box::new(result))
        }
        Ok(ServerResult::DiscoverResult(result)) => unsupported(result.supported_versions),
        Ok(_) => DiscoveryOutcome::Legacy,
        Err(error) => match i64::from(error.code.0) {
            VERSION_NOT_SERVED => {
                let supported = error.data.as_ref().and_then(|data| data.get("supported")).cloned();
                unsupported(supported.and_then(|it| serde_json::from_value(it).ok()).unwrap_or_default())
            }
            HEADER_MISMATCH | MISSING_CAPABILITY => {
                DiscoveryOutcome::Refused(Box::new(ClientInitializeError::JsonRpcError(error)))
            }
            _ => DiscoveryOutcome::Legacy,
        },
    }
}

fn meta_of(info: &ClientConfig) -> RequestMetaObject {
    let mut meta = RequestMetaObject::with_client_context(
        ProtocolVersion::V_2026_07_28,
        info.client_info.clone(),
        info.capabilities.clone(),
    );
    declare(&mut meta.0.0);
    meta
}

/// Adds the extension to the client's capabilities in the `_meta` of a request.
fn declare(meta: &mut Map<String, Value>) {
    let capabilities = meta.entry(CAPABILITIES).or_insert_with(|| json!({})).as_object_mut();
    let extensions = capabilities.map(|all| all.entry("extensions").or_insert_with(|| json!({})));
    if let Some(extensions) = extensions.and_then(Value::as_object_mut) {
        extensions.entry(EXTENSION).or_insert_with(|| json!({}));
    }
}

fn discover_id() -> RequestId {
    RequestId::String("tenure-discover".into())
}

fn initialize_id() -> RequestId {
    RequestId::String("tenure-initialize".into())
}
