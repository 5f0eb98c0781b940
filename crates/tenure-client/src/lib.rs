//! What agents use: an MCP client that keeps its data sessions across connections, processes and crashes.
//!
//! A server that keeps state for its clients (a notebook, a counter, a sandbox) names it with a cookie. This
//! crate keeps those cookies in a jar and sends them along, in every dialect that released software speaks, so
//! that a program goes on where it stopped, over whatever connection. The program itself uses rmcp as ever.
//!
//! ```no_run
//! use tenure_client::{Http, Jar, Options, connect_http};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new(Jar::of_user()?);
//! let client = connect_http("http://localhost:8484/mcp", Http::default(), options).await?;
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
//! | the session in use, for programs | [`Sessions`] |
//! | time limits, correlation, batches | [`Caller`] |
//! | connections | [`connect_http`], [`connect_command`] |

mod call;
mod clock;
mod connect;
mod cookie;
pub mod dialect;
mod error;
mod jar;
mod layer;

pub use call::{
    Batch, CORRELATION_KEY, CallOptions, Caller, Correlation, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT,
};
pub use connect::Client;
#[cfg(feature = "command")]
pub use connect::{Child, Command, connect_command, connect_command_with};
#[cfg(feature = "http")]
pub use connect::{Http, TapClient, connect_http, connect_http_with};
pub use cookie::{Cookie, SessionId};
pub use dialect::Dialect;
pub use error::{Error, Kind};
pub use jar::{Book, Jar, KeptCookie, Record, Server};
pub use layer::{
    Attach, Create, Era, Eras, Options, Recreate, Session, SessionTransport, Sessions, Tap, TapReader,
};
