//! One request for a token: its form, and the parser of the answer.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;

use super::oauth_client::{OAuthClient, add};
use super::subjects::{Subject, SubjectTokens};
use super::token_server::TokenEndpoint;
use crate::fetch::{Answered, FetchError};
use crate::time::UnixSeconds;

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// A longer token is refused.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// How long a token counts if the server does not say, and the longest that it may say.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a token is asked for with.
#[derive(Clone, Debug)]
pub enum OutgoingGrant {
    /// Our own credentials: one token for all callers.
    ClientCredentials,
    /// The token of the caller: one token for each (RFC 8693).
    TokenExchange {
        /// The tokens of callers.
        subjects: SubjectTokens,
        /// The `audience` to ask for, beside `resource`.
        audience: Option<String>,
    },
}

/// A token for a server behind.
#[derive(Clone, PartialEq, Eq)]
pub struct OutgoingToken {
    header: HeaderValue,
    number: u64,
}

impl OutgoingToken {
    /// The value of `Authorization`. It is marked as sensitive.
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Which of the tokens of this process it is. Those that were got later have a larger number.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// It would show the token.
impl fmt::Debug for OutgoingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingToken").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Why there is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutgoingRefusal {
    /// The caller's own token is not at hand: it sent none that can be exchanged, it has expired, or the request runs again in
    /// a process that never saw it.
    NoSubject,
    /// The authorization server gives none.
    Refused,
    /// The authorization server cannot be asked.
    Unavailable,
}

/// Why a request for a token failed, for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestFailure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the authorization server answered with status {status} and `{error}`")]
    Refused { status: u16, error: String },
    #[error("the authorization server's answer has no token that can be used")]
    NoToken,
}

impl RequestFailure {
    pub(super) fn refusal(&self) -> OutgoingRefusal {
        match self {
            Self::Refused { status: 400..=499, .. } => OutgoingRefusal::Refused,
            Self::Refused { .. } | Self::Fetch(_) | Self::NoToken => OutgoingRefusal::Unavailable,
        }
    }
}

/// A token with its life.
pub(super) struct Granted {
    pub(super) token: OutgoingToken,
    pub(super) life: Duration,
}

/// What is asked for, beside the grant.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) client: OAuthClient,
    pub(super) resource: String,
    /// The resource is configured, and counts more than what the server behind says of itself.
    pub(super) is_chosen: bool,
    pub(super) audience: Option<String>,
    pub(super) scope: Option<String>,
}

impl Wanted {
    /// Asks for a token: for ourselves, or for the caller whose token this is.
    pub(super) async fn request(
        &self,
        endpoint: &TokenEndpoint,
        subject: Option<&Subject>,
        number: u64,
        now: UnixSeconds,
    ) -> Result<Granted, RequestFailure> {
        let mut form = String::new();
        match subject {
            None => add(&mut form, "grant_type", "client_credentials"),
            Some(subject) => {
                add(&mut form, "grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
                add(&mut form, "subject_token", &subject.token);
                add(&mut form, "subject_token_type", ACCESS_TOKEN);
            }
        }
        let named = endpoint.resource.as_deref().filter(|_| !self.is_chosen);
        add(&mut form, "resource", named.unwrap_or(&self.resource));
        for (name, value) in [("audience", &self.audience), ("scope", &self.scope)] {
            if let Some(value) = value {
                add(&mut form, name, value);
            }
        }
        let header = self.client.prove(&mut form, &endpoint.audience, endpoint.place, now);
        let answered = endpoint.fetcher.post(&endpoint.url, form, header).await?;
        read(&answered, number)
    }
}

fn read(answered: &Answered, number: u64) -> Result<Granted, RequestFailure> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        token_type: String,
        expires_in: Option<serde_json::Value>,
    }
    #[derive(Deserialize, Default)]
    struct ErrorAnswer {
        #[serde(default)]
        error: String,
    }
    if answered.status != 200 {
        let said: ErrorAnswer = serde_json::from_slice(&answered.body).unwrap_or_default();
        // A word of RFC 6749 and no more: the rest may repeat what we sent.
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        let error: String = said.error.chars().take_while(|&c| is_word(c)).take(40).collect();
        return Err(RequestFailure::Refused { status: answered.status, error });
    }
    let answer: Answer = serde_json::from_slice(&answered.body).map_err(|_| RequestFailure::NoToken)?;
    let is_usable = answer.token_type.eq_ignore_ascii_case("bearer")
        && (1..=MAX_TOKEN_BYTES).contains(&answer.access_token.len())
        && answer.access_token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::from_str(&format!("Bearer {}", answer.access_token));
    let Ok(mut header) = header else { return Err(RequestFailure::NoToken) };
    if !is_usable {
        return Err(RequestFailure::NoToken);
    }
    header.set_sensitive(true);
    let seconds = answer.expires_in.and_then(|said| match said {
        serde_json::Value::String(text) => text.parse().ok(),
        said => said.as_u64(),
    });
    let life = seconds.map_or(DEFAULT_LIFE, Duration::from_secs).min(LONGEST_LIFE);
    Ok(Granted { token: OutgoingToken { header, number }, life })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> Result<Granted, RequestFailure> {
        read(&Answered { status, headers: http::HeaderMap::new(), body: body.as_bytes().to_vec() }, 1)
    }

    #[test]
    fn an_answer_is_a_bearer_token_or_a_failure() {
        for (body, seconds) in [
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":60}"#, 60),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":"60"}"#, 60),
            (r#"{"access_token":"t","token_type":"Bearer"}"#, 300),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":99999999}"#, 86400),
        ] {
            let granted = answered(200, body).unwrap_or_else(|error| panic!("{body}: {error}"));
            assert_eq!(granted.token.header(), "Bearer t");
            assert_eq!(granted.life.as_secs(), seconds, "{body}");
            assert!(!format!("{:?}", granted.token).contains("Bearer t"));
        }
        for body in [
            "",
            "{}",
            r#"{"access_token":"t","token_type":"DPoP"}"#,
            r#"{"access_token":"","token_type":"Bearer"}"#,
            r#"{"access_token":"a b","token_type":"Bearer"}"#,
            r#"{"access_token":"a\nb","token_type":"Bearer"}"#,
        ] {
            assert!(matches!(answered(200, body), Err(RequestFailure::NoToken)), "{body}");
        }
    }

    #[test]
    fn a_refusal_is_logged_by_one_word() {
        let secret = r#"{"error":"invalid_client secret-123","error_description":"secret-123"}"#;
        let failure = answered(401, secret).err().unwrap();
        assert_eq!(
            failure.to_string(),
            "the authorization server answered with status 401 and `invalid_client`"
        );
        assert_eq!(failure.refusal(), OutgoingRefusal::Refused);
        assert_eq!(answered(503, "").err().unwrap().refusal(), OutgoingRefusal::Unavailable);
    }
}
