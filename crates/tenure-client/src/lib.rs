//! An MCP client for agents that keeps its data sessions across connections, processes and crashes.
//!
//! A server that keeps state for its clients (a notebook, a counter, a sandbox) names that state with a cookie. This
//! crate keeps the cookies in a jar and adds them to requests, in every dialect that released servers speak. So a
//! program continues where it stopped, over any connection.
//!
//! ```
//! use tenure_client::{DataSessionId, Dialect, Jar, JarServer, SessionCookie};
//! use time::OffsetDateTime;
//!
//! # fn main() -> Result<(), tenure_client::Error> {
//! let (jar, server) = (Jar::in_memory(), JarServer::url("http://localhost:8484/mcp"));
//! let cookie = SessionCookie::of_id(Dialect::Draft, &DataSessionId::new("s-1"));
//! jar.update(|book| book.keep_as_used(&server, &cookie, OffsetDateTime::UNIX_EPOCH))?;
//!
//! // The next connection to this server goes on with that session.
//! assert_eq!(jar.active(&server, Dialect::Draft)?, Some(cookie));
//! # Ok(())
//! # }
//! ```
//!
//! The program itself uses rmcp without changes:
//!
//! ```no_run
//! use tenure_client::{HttpOptions, Jar, SessionOptions, connect_http};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = SessionOptions::new(Jar::of_user()?);
//! let client = connect_http("http://localhost:8484/mcp", HttpOptions::default(), options).await?;
//! let tools = client.list_all_tools().await?;
//! println!("{} tools, session {:?}", tools.len(), client.sessions().current());
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | what | where |
//! |---|---|
//! | methods, fields, codes of the dialects; pure | [`dialect`] |
//! | the file that keeps cookies | [`Jar`], `jar/` |
//! | the layer between rmcp's client and its transport | [`SessionTransport`], `layer/` |
//! | the session in use, for programs | [`SessionHandle`] |
//! | time limits, correlation, batches | [`RequestSender`] |
//! | connections | [`connect_http`], [`connect_command`] |

mod connect;
mod call;
mod layer;
pub mod dialect;
mod jar;
mod cookie;
mod clock;
mod error;

pub use call::{
    Batch, CORRELATION_KEY, CallOptions, Correlation, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT, RequestSender,
};
pub use connect::ConnectedClient;
#[cfg(feature = "http")]
pub use connect::{HttpOptions, TapClient, connect_http, connect_http_with};
#[cfg(feature = "command")]
pub use connect::{ServerCommand, ServerProcess, connect_command, connect_command_with};
pub use cookie::{DataSessionId, SessionCookie};
pub use dialect::Dialect;
pub use error::{ClientErrorKind, Error};
pub use jar::{Book, Jar, JarRecord, JarServer, KeptCookie};
pub use layer::{
    Attach, Create, DataSession, EraChoice, Recreate, SessionHandle, SessionOptions, SessionTransport, Tap,
    TapReader,
};
pub use tenure_protocol::Era;
