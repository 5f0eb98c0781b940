//! What a node counts of itself, as scrapers and operators get it.

mod hooks;
mod kills;
mod labels;
mod names;
mod report;
#[cfg(feature = "otlp")]
mod traces;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::support::client::Ask;

/// Scrapes a node, in the older text format.
async fn scraped(address: SocketAddr) -> String {
    let response = Ask::get().at("/metrics").send(address).await;
    assert_eq!(response.status(), 200, "{response:?}");
    String::from_utf8(response.body.to_vec()).expect("text")
}

/// The samples whose line begins so, by their labels.
fn samples(text: &str, name: &str) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then(|| (labels.to_owned(), value.parse().ok()))
    };
    text.lines().filter_map(sample).map(|(labels, value)| (labels, value.expect("a number"))).collect()
}

/// The sum of the samples whose labels have all of these.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let has = |all: &String| labels.iter().all(|label| all.contains(label));
    samples(text, name).iter().filter(|(all, _)| has(all)).map(|(_, value)| value).sum()
}
