//! Our own credentials towards servers behind: tokens that we get for ourselves or for a caller, and a signed word about who
//! is calling. The credentials of clients themselves never go further than to the authorization server of the operator.
//!
//! [`OutgoingTokens`] keeps the tokens for one server behind: one for all callers by client credentials, or one for each
//! caller by token exchange (RFC 8693), from the tokens that an [`Authenticator`](crate::Authenticator) has verified and
//! lent ([`SubjectTokens`]). [`PrincipalSigner`] names the caller of a request to a server that trusts our key.
//!
//! Nothing here is written anywhere: a process that starts has no token of any caller until the caller's next request.

mod tokens;
mod subjects;
mod token_request;
mod token_server;
mod discovery;

mod oauth_client;
mod client_key;

mod principal_signer;

pub use client_key::{ClientKey, ClientKeyError};
pub use oauth_client::{ClientProof, OAuthClient};
pub use principal_signer::PrincipalSigner;
pub use subjects::{CallerName, SubjectTokens};
pub use token_request::{OutgoingGrant, OutgoingRefusal, OutgoingToken};
pub use token_server::TokenServer;
pub use tokens::{OutgoingClients, OutgoingSettings, OutgoingTokens};
