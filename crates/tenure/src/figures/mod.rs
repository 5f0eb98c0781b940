//! The counters of the process: for `/metrics`, for operators and for the page.
//!
//! [`Figures`] hears of every request and of what happens to sessions, stands in front of the servers behind, and keeps a
//! history of the last minutes and of the last day, the calls that ended last, and the sessions that ended last. All of it is
//! bounded. What is counted of a single session is kept with the session (`tenure_session::figures`).
//!
//! Read in this order: `view` (the types of the answers), `counted` (the whole), `observers` (what is heard), `uncounted` (lists of each thread), `behind` (servers),
//! `tools` (which names become labels), `latency`, `history`, `calls` over `short_text`, `ended`, `metrics` (names of Prometheus), `process` (the operating
//! system), `watched` (values that are read on demand), `page` (the listener of `/metrics`), `report` (lines in the log).

mod view;
mod counted;
mod observers;
mod uncounted;
mod behind;
mod tools;
mod latency;
mod history;
mod calls;
mod short_text;
mod ended;
mod metrics;
mod process;
mod watched;
mod page;
mod report;

pub(crate) use behind::ServerKind;
pub(crate) use counted::Figures;
pub(crate) use page::MetricsPage;
pub(crate) use view::{BackendRow, Live, ProcessFigures, Rates, ResumeCounts, Span};
pub(crate) use watched::Watched;
