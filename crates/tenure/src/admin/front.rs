//! The requests of the port: a login, the API, or a file of the page.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, COOKIE, ETAG, HeaderValue, IF_NONE_MATCH, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::Deserialize;
use tenure_transport::strangers::GuardedConnection;

use super::api::{AdminAnswer, AdminApi, BASE, read_body, refuse, with_type};
use super::caller::{AdminCaller, Standing, Via, user_name};
use super::error::AdminError;
use super::guard::{Guard, add_headers, check_page};
use super::keys::OperatorKeys;
use super::login::{LOGIN_TIME, Login};
use super::refused::{FailedCallers, NotLetIn};
use crate::audit::AdminAction;
use crate::operator::now;
use crate::page;

/// Answers the requests of the port. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Front(Arc<FrontState>);

#[derive(Debug)]
struct FrontState {
    api: AdminApi,
    keys: OperatorKeys,
    guard: Guard,
    cookie: CookieName,
    failed: FailedCallers,
}

/// The name of the cookie, and whether it travels over TLS alone.
#[derive(Clone, Debug)]
struct CookieName {
    name: String,
    attributes: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginOrder {
    code: String,
}

impl CookieName {
    /// Cookies do not know ports, so two servers on one machine need two names.
    fn of(port: u16, has_tls: bool) -> Self {
        match has_tls {
            true => Self {
                name: format!("__Host-tenure-{port}"),
                attributes: "HttpOnly; SameSite=Strict; Path=/; Secure",
            },
            false => Self { name: format!("tenure-{port}"), attributes: "HttpOnly; SameSite=Strict; Path=/" },
        }
    }

    /// What the browser has sent under this name.
    fn read<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| value)
    }

    fn write(&self, value: &str, seconds: u64) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("{}={value}; {}; Max-Age={seconds}", self.name, self.attributes)).ok()
    }
}

impl Front {
    pub(super) fn new(
        api: AdminApi,
        keys: OperatorKeys,
        address: SocketAddr,
        hosts: &[String],
        has_tls: bool,
    ) -> Self {
        let (guard, cookie) = (Guard::new(address, hosts), CookieName::of(address.port(), has_tls));
        let failed = FailedCallers::new(&api.0.config, api.0.operator.audit().cloned());
        Self(Arc::new(FrontState { api, keys, guard, cookie, failed }))
    }

    /// Forgets addresses whose failures are long ago.
    pub(super) fn forget(&self) {
        self.0.failed.forget();
    }

    /// Answers a request. A connection whose caller shows good credentials may stay.
    ///
    /// # Cancel safety
    /// A change that has begun is finished.
    pub(super) async fn answer(
        &self,
        remote: SocketAddr,
        connection: &GuardedConnection,
        request: Request<Incoming>,
    ) -> AdminAnswer {
        let mut answer = match self.answered(remote, connection, request).await {
            Ok(answer) => answer,
            Err(refused) => {
                let error = self.0.failed.refuse(remote, refused);
                let mut answer = refuse(&error);
                if answer.status() == StatusCode::UNAUTHORIZED {
                    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                if let Some(after) = error.retry_after {
                    // Rounded up: a caller that waits as long as it is told is not refused once more.
                    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs() + 1));
                }
                answer
            }
        };
        add_headers(answer.headers_mut());
        answer
    }

    async fn answered(
        &self,
        remote: SocketAddr,
        connection: &GuardedConnection,
        request: Request<Incoming>,
    ) -> Result<AdminAnswer, NotLetIn> {
        let (head, body) = request.into_parts();
        self.0.guard.check_host(&head, remote)?;
        match (&head.method, head.uri.path()) {
            (_, path)
                if path == BASE || path.strip_prefix(BASE).is_some_and(|rest| rest.starts_with('/')) =>
            {
                let caller = self.caller(&head, remote).await?;
                if !connection.is_proven().await {
                    let error = AdminError::unavailable("Operators have too many connections open already");
                    return Err(error.hint("close some pages").into());
                }
                Ok(self.0.api.answer(&caller, Request::from_parts(head, body)).await)
            }
            (&Method::POST, "/login") => {
                let answer = self.log_in(&head, body, remote).await?;
                // Whether it may stay or not: the link is used up, so the page has to get its cookie.
                connection.is_proven().await;
                Ok(answer)
            }
            (&Method::POST, "/logout") => Ok(self.log_out(&head)?),
            (&Method::GET | &Method::HEAD, _) => {
                // Files are for everybody, but a browser that is logged in needs no other connection for the rest.
                if self.login(&head).is_some() {
                    connection.is_proven().await;
                }
                Ok(page(&head)?)
            }
            _ => Err(AdminError::method().into()),
        }
    }

    /// The login of a request's cookie.
    fn login(&self, head: &Parts) -> Option<Arc<Login>> {
        self.0.api.0.logins.find(self.0.cookie.read(&head.headers)?, now())
    }

    /// Who asks. A key wins over a cookie.
    async fn caller(&self, head: &Parts, remote: SocketAddr) -> Result<AdminCaller, NotLetIn> {
        if let Some(caller) = self.0.keys.caller(head, remote).await? {
            return Ok(caller);
        }
        if self.0.cookie.read(&head.headers).is_none() {
            return Err(AdminError::unauthorized("You are not logged in").into());
        }
        check_page(head)?;
        let login = self.login(head).ok_or_else(NotLetIn::by_cookie)?;
        Ok(caller_of(&login, remote))
    }

    async fn log_in(
        &self,
        head: &Parts,
        body: Incoming,
        remote: SocketAddr,
    ) -> Result<AdminAnswer, NotLetIn> {
        check_page(head)?;
        let order: LoginOrder = serde_json::from_slice(&read_body(body).await?)
            .map_err(|error| AdminError::bad(format!("The body has to be {{\"code\": …}}: {error}")))?;
        let logged_in = self.0.api.0.logins.log_in(&order.code, Some(remote), now());
        let (cookie, login) = logged_in.ok_or_else(NotLetIn::by_code)?;
        self.note(&caller_of(&login, remote), "login");
        Ok(self.with_cookie(&cookie, LOGIN_TIME.as_secs())?)
    }

    fn log_out(&self, head: &Parts) -> Result<AdminAnswer, AdminError> {
        check_page(head)?;
        if let Some(cookie) = self.0.cookie.read(&head.headers) {
            self.0.api.0.logins.log_out(cookie);
        }
        self.with_cookie("", 0)
    }

    fn with_cookie(&self, value: &str, seconds: u64) -> Result<AdminAnswer, AdminError> {
        let mut answer = with_type(StatusCode::NO_CONTENT, "application/json", Bytes::new());
        let cookie = self.0.cookie.write(value, seconds);
        let cookie = cookie.ok_or_else(|| AdminError::failed("The cookie cannot be written"))?;
        answer.headers_mut().insert(SET_COOKIE, cookie);
        Ok(answer)
    }

    fn note(&self, caller: &AdminCaller, operation: &str) {
        tracing::info!(
            operator = caller.name,
            role = caller.role.as_str(),
            operation,
            "an operator logged in"
        );
        if let Some(audit) = self.0.api.0.operator.audit() {
            audit.operator_did(&AdminAction {
                who: caller.identity(),
                operation,
                about: caller.role.as_str(),
                is_done: true,
                change: None,
                reason: None,
                remote: caller.address(),
            });
        }
    }
}

fn caller_of(login: &Arc<Login>, remote: SocketAddr) -> AdminCaller {
    AdminCaller {
        name: user_name(login.uid),
        role: login.role,
        via: Via::Link,
        uid: login.uid,
        remote: Some(remote),
        standing: Standing::Login(login.watch()),
    }
}

/// A file of the page.
fn page(head: &Parts) -> Result<AdminAnswer, AdminError> {
    let asset = page::find(head.uri.path());
    let asset =
        asset.ok_or_else(|| AdminError::not_found("There is no such file").hint("the page is at `/`"))?;
    let is_known =
        head.headers.get(IF_NONE_MATCH).is_some_and(|etag| etag.as_bytes() == asset.etag.as_bytes());
    let (status, body) = match is_known {
        true => (StatusCode::NOT_MODIFIED, Bytes::new()),
        false => (StatusCode::OK, asset.body.clone()),
    };
    let mut answer = with_type(status, asset.content_type, body);
    let caching = if asset.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Ok(etag) = HeaderValue::try_from(&asset.etag) {
        answer.headers_mut().insert(ETAG, etag);
    }
    Ok(answer)
}
