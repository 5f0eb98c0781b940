//! Who is asking: turns an HTTP request into a verified [`Identity`], or into a [`AuthRefusal`] that an MCP client understands.
//!
//! Tenure is a resource server and no authorization server: it verifies what others issued. An [`Authenticator`] knows
//! tokens of configured issuers (JWTs, and opaque tokens by introspection), static keys, and client certificates. It needs
//! no other crate of Tenure, and stands in front of any HTTP service. [`outgoing`] is for the other direction: our own credentials
//! towards servers behind.
//!
//! ```
//! use http::{HeaderMap, Uri};
//! use tenure_auth::{Authenticator, Presented, ProtectedResource, AuthSettings, UnixSeconds};
//! use tenure_auth::keys::{ApiKeyFile, NewKey};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! // A key of which the file keeps only the hash.
//! let folder = tempfile::tempdir().unwrap();
//! let file = ApiKeyFile::at(folder.path().join("keys.toml"));
//! let now = UnixSeconds(1_800_000_000);
//! let secret = file.add(NewKey { name: "ci".into(), ..NewKey::default() }, now).unwrap();
//!
//! let settings = AuthSettings { keys: Some(file), ..AuthSettings::default() };
//! let auth = Authenticator::new(settings, reqwest::Client::builder()).unwrap();
//! let endpoint = ProtectedResource::keys_only("/mcp");
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("authorization", format!("Bearer {}", secret.expose()).parse().unwrap());
//! let uri = Uri::from_static("/mcp");
//! let request = Presented::read(&headers, &uri, "POST").unwrap();
//! let identity = auth.verify(&request, &endpoint, now).await.unwrap();
//! assert_eq!(identity.principal(), "key:ci");
//!
//! headers.clear();
//! let nothing = Presented::read(&headers, &uri, "POST").unwrap();
//! let refusal = auth.verify(&nothing, &endpoint, now).await.unwrap_err();
//! assert_eq!(refusal.status(), 401);
//! assert_eq!(refusal.challenge(&endpoint).unwrap(), r#"Bearer realm="tenure""#);
//! # });
//! ```

mod authenticator;
mod presented;
mod identity;
mod resource;
mod refusal;
pub mod scope;
pub mod issuer;
pub mod keys;
mod certificate;
mod validity;
mod claims;
mod dpop;
mod introspection;
mod jwk;
pub mod jws;
mod fetch;
mod generation;
mod server_metadata;
mod observer;
pub mod outgoing;
mod revoked;
mod time;
mod verdicts;
mod last_shown;
mod vouched;

pub use authenticator::{AuthSettings, AuthSettingsError, Authenticator};
pub use certificate::ClientCertificate;
pub use identity::{CredentialKind, Identity};
pub use last_shown::LastShown;
pub use observer::{CredentialEvent, CredentialObserver};
pub use presented::Presented;
pub use refusal::{AuthRefusal, TokenFault};
pub use resource::ProtectedResource;
pub use time::UnixSeconds;
pub use vouched::{VouchedIdentity, VouchedToken};
