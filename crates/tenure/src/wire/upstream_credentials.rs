//! The credentials of this gateway at a server at a URL, built from the configuration.
//!
//! In: `[upstream]`, and the tokens that callers have shown. Out: an [`UpstreamCredentials`] for the backend, or nothing if
//! fixed headers are all. The backend knows no tokens, `tenure-auth` knows no backends; this file is where they meet.

use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};
use tenure_auth::UnixSeconds;
use tenure_auth::outgoing::{
    CallerName, ClientKey, ClientKeyError, ClientProof, OAuthClient, OutgoingClients, OutgoingGrant,
    OutgoingRefusal, OutgoingSettings, OutgoingToken, OutgoingTokens, PrincipalSigner, SubjectTokens,
    TokenServer,
};
use tenure_auth::scope::ScopeSet;
use tenure_backend::remote::{CredentialHeaders, NoCredentials, OnBehalf, Purpose, UpstreamCredentials};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::{Clock, SystemClock};

use super::backends::secret;
use crate::config::{Config, UpstreamAuthConfig, UpstreamAuthMode, UpstreamConfig};
use crate::failure::Failure;
use crate::url_text::public_part;

const PRINCIPAL: HeaderName = HeaderName::from_static("x-tenure-principal");

/// The credentials that the configuration asks for; `None` if it has only fixed headers.
pub(super) fn credentials(
    url: &str,
    config: &UpstreamConfig,
    whole: &Config,
    subjects: Option<SubjectTokens>,
) -> Result<Option<Arc<dyn UpstreamCredentials>>, Failure> {
    let tokens = tokens(url, &config.auth, subjects)?;
    let signer = signer(url, &config.auth, whole)?;
    if tokens.is_none() && signer.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(GatewayCredentials(Arc::new(Parts { tokens, signer })))))
}

fn tokens(
    url: &str,
    auth: &UpstreamAuthConfig,
    subjects: Option<SubjectTokens>,
) -> Result<Option<OutgoingTokens>, Failure> {
    let grant = match auth.mode {
        UpstreamAuthMode::None => return Ok(None),
        UpstreamAuthMode::ClientCredentials => OutgoingGrant::ClientCredentials,
        UpstreamAuthMode::TokenExchange => OutgoingGrant::TokenExchange {
            // Over stdio there are no callers with tokens, and every request is refused.
            subjects: subjects.unwrap_or_default(),
            audience: auth.audience.clone(),
        },
    };
    let proof = match (&auth.client_secret, &auth.client_key) {
        (Some(text), _) => {
            let hint = "write `client_secret = \"env:VARIABLE\"` or `client_secret = \"file:PATH\"`";
            ClientProof::Secret(secret(text, "`upstream.client_secret`", hint)?)
        }
        (None, Some(file)) => {
            let key = ClientKey::read(file, auth.client_key_id.as_deref());
            ClientProof::Key(Arc::new(key.map_err(|error| unusable_key("upstream.client_key", error))?))
        }
        (None, None) => ClientProof::None,
    };
    let settings = OutgoingSettings {
        upstream: url.to_owned(),
        grant,
        server: match (&auth.token_url, &auth.issuer) {
            (Some(url), Some(issuer)) => TokenServer::IssuerAt { issuer: issuer.clone(), url: url.clone() },
            (Some(url), None) => TokenServer::Url(url.clone()),
            (None, Some(issuer)) => TokenServer::Issuer(issuer.clone()),
            (None, None) => TokenServer::NamedByServer,
        },
        client: OAuthClient { id: auth.client_id.clone().unwrap_or_default(), proof },
        resource: auth.resource.clone(),
        scope: auth.scope.clone(),
    };
    let clients = OutgoingClients::with_system_trust()
        .map_err(|error| Failure::new("cannot set up requests to authorization servers").caused_by(error))?;
    let tokens = OutgoingTokens::new(settings, &clients);
    tokens.map(Some).ok_or_else(|| {
        Failure::new("cannot use the upstream: its URL makes no sense")
            .hint("name an endpoint such as https://mcp.example.com/mcp")
    })
}

fn signer(url: &str, auth: &UpstreamAuthConfig, whole: &Config) -> Result<Option<PrincipalSigner>, Failure> {
    let Some(file) = &auth.identity_key else { return Ok(None) };
    let key = ClientKey::read(file, None).map_err(|error| unusable_key("upstream.identity_key", error))?;
    let issuer = whole.auth.public_url.clone().unwrap_or_else(|| "tenure".to_owned());
    let audience = auth.resource.clone().unwrap_or_else(|| public_part(url));
    Ok(Some(PrincipalSigner::new(Arc::new(key), issuer, audience)))
}

fn unusable_key(setting: &str, error: ClientKeyError) -> Failure {
    Failure::new(format!("cannot use the key of `{setting}`"))
        .caused_by(error)
        .hint("`tenure keys identity FILE --new` makes one, and so does `openssl genpkey -algorithm ed25519 -out FILE`")
}

/// The credentials of this gateway at one server.
struct GatewayCredentials(Arc<Parts>);

struct Parts {
    tokens: Option<OutgoingTokens>,
    signer: Option<PrincipalSigner>,
}

impl UpstreamCredentials for GatewayCredentials {
    fn headers(&self, whom: &OnBehalf) -> BoxFuture<Result<CredentialHeaders, NoCredentials>> {
        let (parts, caller, purpose) = (Arc::clone(&self.0), caller(whom), whom.purpose);
        Box::pin(async move {
            let token = match &parts.tokens {
                Some(tokens) => Some(token(tokens, caller.as_ref(), purpose).await.map_err(missing)?),
                None => None,
            };
            Ok(parts.headers(caller.as_ref(), token))
        })
    }

    fn renewed(
        &self,
        whom: &OnBehalf,
        refused: &CredentialHeaders,
    ) -> BoxFuture<Result<Option<CredentialHeaders>, NoCredentials>> {
        let (parts, caller, refused) = (Arc::clone(&self.0), caller(whom), refused.number);
        Box::pin(async move {
            let Some(tokens) = &parts.tokens else { return Ok(None) };
            let token = tokens.renewed(caller.as_ref(), refused, now()).await.map_err(missing)?;
            Ok(token.map(|token| parts.headers(caller.as_ref(), Some(token))))
        })
    }
}

impl Parts {
    fn headers(&self, caller: Option<&CallerName>, token: Option<OutgoingToken>) -> CredentialHeaders {
        let mut headers = HeaderMap::with_capacity(2);
        let number = token.as_ref().map_or(0, OutgoingToken::number);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.header().clone());
        }
        if let (Some(signer), Some(caller)) = (&self.signer, caller)
            && let Some(word) = signer.header(&caller.principal, caller.client.as_ref(), now())
        {
            headers.insert(PRINCIPAL, word);
        }
        CredentialHeaders { headers, number }
    }
}

/// A token for a message. One that asks for nothing may have a token whose caller has lost its own since: the server would never
/// learn otherwise that it may stop.
async fn token(
    tokens: &OutgoingTokens,
    caller: Option<&CallerName>,
    purpose: Purpose,
) -> Result<OutgoingToken, OutgoingRefusal> {
    let now = now();
    match (tokens.token(caller, now).await, caller, purpose) {
        (Err(refusal), Some(caller), Purpose::Tell) => tokens.last_token(caller, now).ok_or(refusal),
        (outcome, ..) => outcome,
    }
}

/// The name of a caller; `None` for one without a name.
fn caller(whom: &OnBehalf) -> Option<CallerName> {
    Some(CallerName {
        principal: whom.principal.name()?.into(),
        client: whom.principal.client().map(Into::into),
        scopes: whom.scopes.clone().map(ScopeSet::from_shared),
    })
}

fn missing(refusal: OutgoingRefusal) -> NoCredentials {
    NoCredentials(match refusal {
        OutgoingRefusal::NoSubject => {
            "The server needs a token of the caller, and none is at hand; send the request again with one"
        }
        OutgoingRefusal::Refused => "The authorization server gives this gateway no token for the server",
        OutgoingRefusal::Unavailable => "A token for the server cannot be got at present; try again later",
    })
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemClock.now().0 / 1000)
}
