//! Reads a server's list of tools, page by page, to learn which tools may be called twice.

use tenure_protocol::{Reply, RpcError, params};

/// Most pages of a list that are read.
const MAX_PAGES: usize = 64;

/// The names of the tools whose hints say that a second call does no harm, and the error if the server did not list
/// all its tools. `page` asks the server for the page with this cursor.
///
/// # Cancel safety
/// Dropping it drops the request for a page.
pub async fn repeatable_tools<R: Future<Output = Reply>>(
    page: impl Fn(Option<String>) -> R,
) -> (Vec<String>, Option<RpcError>) {
    let (mut found, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let listed = match page(cursor).await {
            Ok(listed) => listed,
            Err(error) => return (found, Some(error)),
        };
        let (tools, next) = params::repeatable_tools(&listed);
        found.extend(tools);
        if next.is_none() {
            break;
        }
        cursor = next;
    }
    (found, None)
}
