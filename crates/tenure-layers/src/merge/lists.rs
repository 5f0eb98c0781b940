//! Merges the lists of several servers: all are asked at the same time, and their pages are concatenated.
//!
//! The first page has the first page of every server. The cursor names the servers that have more, with their own
//! cursors. A server that is away or too slow is left out, and the result says so. One that a limit keeps the caller from is not away:
//! the answer is the refusal then, since a client would take a shorter list for the whole one. A server that says so itself only loses
//! its own part.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::json::splice;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::call::CallContext;

use crate::merge::link::Merged;
use crate::merge::names;
use crate::merge::part::{MergePart, PATIENCE, late};

/// How many pages of a list are read to find something in it.
const MAX_PAGES: usize = 100;

/// The member of `_meta` that names the servers which are missing from a list.
pub const UNAVAILABLE: &str = "dev.tenure/unavailable";

/// A kind of list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    pub(super) const COUNT: usize = 4;

    pub(super) fn of(method: &Method) -> Option<Self> {
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates]
            .into_iter()
            .find(|kind| kind.method() == *method)
    }

    fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourcesTemplatesList,
        }
    }

    /// The member of the result that holds the list, and the capability that a server must have.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Tools => ("tools", "tools"),
            Self::Prompts => ("prompts", "prompts"),
            Self::Resources => ("resources", "resources"),
            Self::Templates => ("resourceTemplates", "resources"),
        }
    }
}

/// A page of one server: its items as they are, and its cursor.
struct MemberPage {
    items: Vec<Bytes>,
    next: Option<Box<RawValue>>,
}

impl MemberPage {
    fn read(kind: ListKind, page: &RawJson) -> Option<Self> {
        let members: HashMap<Cow<'_, str>, &RawValue> = page.read().ok()?;
        let items: Vec<&RawValue> = serde_json::from_str(members.get(kind.names().0)?.get()).ok()?;
        let items = items.iter().map(|item| page.bytes().slice_ref(item.get().as_bytes())).collect();
        let next = members.get("nextCursor").filter(|cursor| cursor.get() != "null");
        Some(Self { items, next: next.map(|cursor| (*cursor).to_owned()) })
    }

    /// About how many bytes it adds to the merged list, prefixes included.
    fn size(&self) -> usize {
        self.items.iter().map(|item| item.len() + 64).sum()
    }
}

/// Why a server has no page.
enum PageFault {
    /// A limit of ours keeps the caller from it.
    Limited(RpcError),
    /// It is away, or refuses.
    Away(RpcError),
}

impl From<RpcError> for PageFault {
    fn from(error: RpcError) -> Self {
        Self::Away(error)
    }
}

/// Each server's own cursor as JSON, by the server's name.
type Cursors = BTreeMap<String, Box<RawValue>>;

impl Merged {
    /// Answers a request for a list.
    pub(super) async fn list(&self, kind: ListKind, request: &Request, context: &CallContext) -> Reply {
        let cursors = cursors(request.params.as_ref())?;
        let asked = self.parts.iter().filter_map(|part| {
            let cursor = match &cursors {
                None => None,
                Some(cursors) => Some(cursors.get(&part.member.name)?),
            };
            Some(async move { (part, self.page(kind, part, request, cursor.map(|c| &**c), context).await) })
        });
        let pages = join_all(asked).await;
        let (mut items, mut next, mut missing, mut fault) = (Vec::new(), Cursors::new(), Vec::new(), None);
        let (mut answered, mut bytes) = (false, 0);
        for (part, page) in pages {
            match page {
                // A server whose list is too large is left out, so that the others' lists still get through.
                Ok(Some(page)) if bytes + page.size() > self.max_list_bytes => {
                    let (backend, limit) = (&part.member.name, self.max_list_bytes);
                    tracing::warn!(backend, ?kind, limit, "a list is too large to be served with the others");
                    missing.push(&*part.member.name);
                    fault.get_or_insert_with(|| RpcError::of(Reason::EventTooLarge, "The list is too large"));
                }
                Ok(Some(page)) => {
                    answered = true;
                    bytes += page.size();
                    self.take_page(kind, part, page, &mut items, &mut next);
                }
                Ok(None) => answered = true,
                Err(PageFault::Limited(error)) => return Err(error),
                Err(PageFault::Away(error)) => {
                    tracing::debug!(backend = part.member.name, %error, "a server is missing from a list");
                    missing.push(&*part.member.name);
                    fault.get_or_insert_with(|| error.clone());
                }
            }
        }
        match fault {
            Some(fault) if !answered => Err(fault),
            _ => Ok(write(kind, &items, &next, &missing)),
        }
    }

    /// A page of one server; `None` if it has no such list.
    async fn page(
        &self,
        kind: ListKind,
        part: &Arc<MergePart>,
        request: &Request,
        cursor: Option<&RawValue>,
        context: &CallContext,
    ) -> Result<Option<MemberPage>, PageFault> {
        let mut context = context.clone();
        let refusal = context.marks_refusal();
        let ask = async {
            part.link().await?;
            if !part.has(kind.names().1) {
                return Ok(None);
            }
            let mut request = request.clone();
            request.params = with_cursor(request.params.as_ref(), cursor);
            match part.call(request, &context).await {
                Ok(page) => match MemberPage::read(kind, &page) {
                    Some(page) => Ok(Some(page)),
                    None => {
                        Err(RpcError::of(Reason::BackendUnavailable, "The server's list cannot be read")
                            .into())
                    }
                },
                // For example a server that has resources but no templates.
                Err(error) if error.code() == METHOD_NOT_FOUND => Ok(None),
                // A caller sees what it may use, and is not told of the rest.
                Err(error) if error.is(Reason::Forbidden) => Ok(None),
                Err(error) if refusal.is_set() => Err(PageFault::Limited(error)),
                Err(error) => Err(error.into()),
            }
        };
        tokio::time::timeout(PATIENCE, ask).await.unwrap_or_else(|_| Err(late().into()))
    }

    /// Reads a server's whole list and remembers its items, unless that was done a short while ago.
    pub(super) async fn read_all(&self, part: &Arc<MergePart>, kind: ListKind) {
        if part.was_read(kind) {
            return;
        }
        for item in self.all_items(part, kind).await.unwrap_or_default() {
            self.take_item(kind, part, item);
        }
    }

    /// All items of a server's list; `None` if they cannot be read.
    pub(super) async fn all_items(&self, part: &Arc<MergePart>, kind: ListKind) -> Option<Vec<Bytes>> {
        let (link, _) = part.link_soon().await.ok()?;
        let mut items = Vec::new();
        if !part.has(kind.names().1) {
            return Some(items);
        }
        let mut params = None;
        for _ in 0..MAX_PAGES {
            let page = match part.inquire(&link, &kind.method(), params.take()).await {
                Ok(page) => MemberPage::read(kind, &page)?,
                Err(error) if error.code() == METHOD_NOT_FOUND => return Some(items),
                Err(_) => return None,
            };
            items.extend(page.items);
            let Some(cursor) = page.next else { break };
            params = Some(RawJson::of(&serde_json::json!({ "cursor": cursor })));
        }
        Some(items)
    }

    /// Remembers the name or the owner of an item, and returns the item as clients see it.
    pub(super) fn take_item(&self, kind: ListKind, part: &Arc<MergePart>, item: Bytes) -> Option<RawJson> {
        match kind {
            ListKind::Tools | ListKind::Prompts => self.renamed(kind, part, &item),
            ListKind::Resources | ListKind::Templates => {
                self.resources.learn(kind, part, &item);
                Some(RawJson::trusted(item))
            }
        }
    }

    fn take_page(
        &self,
        kind: ListKind,
        part: &Arc<MergePart>,
        page: MemberPage,
        items: &mut Vec<RawJson>,
        next: &mut Cursors,
    ) {
        items.extend(page.items.into_iter().filter_map(|item| self.take_item(kind, part, item)));
        if let Some(cursor) = page.next {
            next.insert(part.member.name.clone(), cursor);
        }
    }

    /// A tool or prompt under the name that clients see.
    fn renamed(&self, kind: ListKind, part: &Arc<MergePart>, item: &[u8]) -> Option<RawJson> {
        let (name, written) = names::read(item)?;
        let public = names::public(&part.member.prefix, &name, &self.prefixes());
        if !public.ends_with(&*name) {
            self.remember(kind, part, &public, &name);
        }
        Some(names::replaced(item, written, &public))
    }
}

const METHOD_NOT_FOUND: i64 = -32601;

/// The cursors in a client's request; `None` for the first page.
fn cursors(params: Option<&RawJson>) -> Result<Option<Cursors>, RpcError> {
    #[derive(Deserialize)]
    struct ListParams {
        #[serde(default)]
        cursor: Option<String>,
    }
    let bad = || RpcError::of(Reason::InvalidParams, "The cursor was not issued by this server");
    let Some(params) = params else { return Ok(None) };
    let Some(cursor) = params.read::<ListParams>().map_err(|_| bad())?.cursor else { return Ok(None) };
    let text = BASE64.decode(cursor).map_err(|_| bad())?;
    serde_json::from_slice(&text).map(Some).map_err(|_| bad())
}

/// The params with a server's own cursor in place of ours.
fn with_cursor(params: Option<&RawJson>, cursor: Option<&RawValue>) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct CursorParams<'a> {
        #[serde(borrow)]
        cursor: &'a RawValue,
    }
    let params = params?;
    let (Some(cursor), Ok(read)) = (cursor, params.read::<CursorParams<'_>>()) else {
        return Some(params.clone());
    };
    let place = splice::place(params.bytes(), read.cursor.get().as_bytes());
    Some(splice::replace(params.bytes(), &[(place, cursor.get())]))
}

fn write(kind: ListKind, items: &[RawJson], next: &Cursors, missing: &[&str]) -> RawJson {
    let size: usize = items.iter().map(|item| item.bytes().len() + 1).sum();
    let mut text = Vec::with_capacity(size + 128);
    text.extend_from_slice(format!("{{\"{}\":[", kind.names().0).as_bytes());
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(item.bytes());
    }
    text.push(b']');
    if !next.is_empty() {
        let cursor = BASE64.encode(serde_json::to_vec(next).expect("cursors have a JSON form"));
        text.extend_from_slice(format!(",\"nextCursor\":\"{cursor}\"").as_bytes());
    }
    if !missing.is_empty() {
        let meta = serde_json::json!({ UNAVAILABLE: missing });
        text.extend_from_slice(format!(",\"_meta\":{meta}").as_bytes());
    }
    text.push(b'}');
    RawJson::trusted(text)
}
