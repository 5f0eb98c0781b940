//! Opaque tokens: the issuer is asked what they are (RFC 7662).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::claims::Claims;
use crate::fetch::form_encoded;
use crate::issuer::Issuer;
use crate::refusal::{AuthRefusal, TokenFault};
use crate::time::UnixSeconds;

/// The most questions to issuers at once. More wait, so that a flood of made-up tokens does not become a flood at the issuer.
const MAX_AT_ONCE: usize = 16;

/// The longest that a request waits until its token can be asked about.
const MAX_WAIT: Duration = Duration::from_secs(1);

const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Questions to issuers that are under way.
#[derive(Debug)]
pub(crate) struct Introspection(Semaphore);

#[derive(Deserialize)]
struct Active {
    active: bool,
}

impl Default for Introspection {
    fn default() -> Self {
        Self(Semaphore::new(MAX_AT_ONCE))
    }
}

impl Introspection {
    /// The claims of an opaque token, as its issuer tells them.
    pub(crate) async fn claims(
        &self,
        issuer: &Arc<Issuer>,
        token: &str,
        now: UnixSeconds,
    ) -> Result<Claims, AuthRefusal> {
        let unavailable = AuthRefusal::Unavailable { retry_after: RETRY_AFTER };
        let Some(settings) = &issuer.settings.introspection else {
            return Err(AuthRefusal::Invalid(TokenFault::Unknown));
        };
        if issuer.introspection_url().is_none() {
            issuer.refresh(now).await;
        }
        let Some(url) = issuer.introspection_url() else { return Err(unavailable) };
        // A flood of made-up tokens must not keep requests waiting without end.
        let Ok(Ok(_permit)) = tokio::time::timeout(MAX_WAIT, self.0.acquire()).await else {
            return Err(unavailable);
        };
        let form = format!("token={}&token_type_hint=access_token", form_encoded(token));
        let credentials = Some((&*settings.client_id, &*settings.client_secret));
        let answer = issuer.fetcher().post_form(&url, form, credentials).await.map_err(|error| {
            let issuer = &issuer.settings.name;
            tracing::warn!(issuer, error = &error as &dyn std::error::Error, "could not ask about a token");
            unavailable.clone()
        })?;
        let active: Active = serde_json::from_slice(&answer.body).map_err(|_| unavailable)?;
        if !active.active {
            return Err(AuthRefusal::Invalid(TokenFault::Inactive));
        }
        let claims = Claims::read(&answer.body).map_err(AuthRefusal::Invalid)?;
        // An issuer may leave itself out, and must not speak for another.
        match claims.iss.as_deref().is_none_or(|iss| iss == issuer.settings.issuer) {
            true => Ok(claims),
            false => Err(AuthRefusal::Invalid(TokenFault::Issuer)),
        }
    }
}
