//! Lists of several servers as one: asked at the same time, put one after the other.
//!
//! A page has the first page of every server; the cursor of the next says which servers have more, and from where.
//! A server that is away or too slow is left out, and the result says so.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::call::CallContext;

use crate::merge::link::Merged;
use crate::merge::part::{PATIENCE, Slot, late};
use crate::merge::{names, rewrite};

/// How many pages of a list are read to find something in it.
const MAX_PAGES: usize = 100;

/// The member of `_meta` that names servers which are missing in a list.
pub const UNAVAILABLE: &str = "dev.tenure/unavailable";

/// A kind of list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
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
struct Page {
    items: Vec<Bytes>,
    next: Option<Box<RawValue>>,
}

impl Page {
    fn read(kind: Kind, page: &RawJson) -> Option<Self> {
        let members: HashMap<Cow<'_, str>, &RawValue> = page.read().ok()?;
        let items: Vec<&RawValue> = serde_json::from_str(members.get(kind.names().0)?.get()).ok()?;
        let items = items.iter().map(|item| page.bytes().slice_ref(item.get().as_bytes())).collect();
        let next = members.get("nextCursor").filter(|cursor| cursor.get() != "null");
        Some(Self { items, next: next.map(|cursor| (*cursor).to_owned()) })
    }

    /// About how much it adds to the list of all.
    fn size(&self) -> usize {
        // With room for prefixes.
        self.items.iter().map(|item| item.len() + 64).sum()
    }
}

/// From where each server goes on; its own cursors, as JSON.
type Cursors = BTreeMap<String, Box<RawValue>>;

impl Merged {
    /// Answers a request for a list.
    pub(super) async fn list(&self, kind: Kind, request: &Request, context: &CallContext) -> Reply {
        let cursors = cursors(request.params.as_ref())?;
        let asked = self.slots.iter().filter_map(|slot| {
            let cursor = match &cursors {
                None => None,
                Some(cursors) => Some(cursors.get(&slot.member.name)?),
            };
            Some(async move { (slot, self.page(kind, slot, request, cursor.map(|c| &**c), context).await) })
        });
        let pages = join_all(asked).await;
        let (mut items, mut next, mut missing, mut fault) = (Vec::new(), Cursors::new(), Vec::new(), None);
        let (mut answered, mut bytes) = (false, 0);
        for (slot, page) in pages {
            match page {
                // A list that is too large for one message must not take the others with it.
                Ok(Some(page)) if bytes + page.size() > self.max_list_bytes => {
                    let (backend, limit) = (&slot.member.name, self.max_list_bytes);
                    tracing::warn!(backend, ?kind, limit, "a list is too large to be served with the others");
                    missing.push(&*slot.member.name);
                    fault.get_or_insert_with(|| RpcError::of(Reason::EventTooLarge, "The list is too large"));
                }
                Ok(Some(page)) => {
                    answered = true;
                    bytes += page.size();
                    self.take_page(kind, slot, page, &mut items, &mut next);
                }
                Ok(None) => answered = true,
                Err(error) => {
                    tracing::debug!(backend = slot.member.name, %error, "missing in a list");
                    missing.push(&*slot.member.name);
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
        kind: Kind,
        slot: &Arc<Slot>,
        request: &Request,
        cursor: Option<&RawValue>,
        context: &CallContext,
    ) -> Result<Option<Page>, RpcError> {
        let ask = async {
            slot.link().await?;
            if !slot.has(kind.names().1) {
                return Ok(None);
            }
            let mut request = request.clone();
            request.params = with_cursor(request.params.as_ref(), cursor);
            match slot.call(request, context).await {
                Ok(page) => match Page::read(kind, &page) {
                    Some(page) => Ok(Some(page)),
                    None => Err(RpcError::of(Reason::BackendUnavailable, "The server's list cannot be read")),
                },
                // It has resources but no templates, say.
                Err(error) if error.code() == METHOD_NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        };
        tokio::time::timeout(PATIENCE, ask).await.unwrap_or_else(|_| Err(late()))
    }

    /// Reads a server's whole list for what has to be known of it, unless that was done a short while ago.
    pub(super) async fn read_all(&self, slot: &Arc<Slot>, kind: Kind) {
        if slot.was_read(kind) {
            return;
        }
        for item in self.all_items(slot, kind).await.unwrap_or_default() {
            self.take_item(kind, slot, item);
        }
    }

    /// All items of a server's list; `None` if they cannot be had.
    pub(super) async fn all_items(&self, slot: &Arc<Slot>, kind: Kind) -> Option<Vec<Bytes>> {
        let (link, _) = slot.link_soon().await.ok()?;
        let mut items = Vec::new();
        if !slot.has(kind.names().1) {
            return Some(items);
        }
        let mut params = None;
        for _ in 0..MAX_PAGES {
            let page = match slot.inquire(&link, &kind.method(), params.take()).await {
                Ok(page) => Page::read(kind, &page)?,
                Err(error) if error.code() == METHOD_NOT_FOUND => return Some(items),
                Err(_) => return None,
            };
            items.extend(page.items);
            let Some(cursor) = page.next else { break };
            params = Some(RawJson::of(&serde_json::json!({ "cursor": cursor })));
        }
        Some(items)
    }

    /// Remembers what has to be known of an item, and returns it as clients see it.
    pub(super) fn take_item(&self, kind: Kind, slot: &Arc<Slot>, item: Bytes) -> Option<RawJson> {
        match kind {
            Kind::Tools | Kind::Prompts => self.renamed(kind, slot, &item),
            Kind::Resources | Kind::Templates => {
                self.resources.learn(kind, slot, &item);
                Some(RawJson::trusted(item))
            }
        }
    }

    fn take_page(
        &self,
        kind: Kind,
        slot: &Arc<Slot>,
        page: Page,
        items: &mut Vec<RawJson>,
        next: &mut Cursors,
    ) {
        items.extend(page.items.into_iter().filter_map(|item| self.take_item(kind, slot, item)));
        if let Some(cursor) = page.next {
            next.insert(slot.member.name.clone(), cursor);
        }
    }

    /// A tool or prompt under the name that clients see.
    fn renamed(&self, kind: Kind, slot: &Arc<Slot>, item: &[u8]) -> Option<RawJson> {
        let (name, place) = rewrite::name(item)?;
        let public = names::public(&slot.member.prefix, &name, &self.prefixes());
        if !public.ends_with(&name) {
            self.remember(kind, slot, &public, &name);
        }
        Some(RawJson::trusted(rewrite::replace(item, place, rewrite::quoted(&public).as_bytes())))
    }
}

const METHOD_NOT_FOUND: i64 = -32601;

/// The cursors that a client gives back; `None` for the first page.
fn cursors(params: Option<&RawJson>) -> Result<Option<Cursors>, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(default)]
        cursor: Option<String>,
    }
    let bad = || RpcError::of(Reason::InvalidParams, "The cursor is none that was given here");
    let Some(params) = params else { return Ok(None) };
    let Some(cursor) = params.read::<Params>().map_err(|_| bad())?.cursor else { return Ok(None) };
    let text = BASE64.decode(cursor).map_err(|_| bad())?;
    serde_json::from_slice(&text).map(Some).map_err(|_| bad())
}

/// The params with a server's own cursor in place of ours.
fn with_cursor(params: Option<&RawJson>, cursor: Option<&RawValue>) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        cursor: &'a RawValue,
    }
    let params = params?;
    let (Some(cursor), Ok(read)) = (cursor, params.read::<Params<'_>>()) else { return Some(params.clone()) };
    let place = rewrite::place(params.bytes(), read.cursor);
    Some(RawJson::trusted(rewrite::replace(params.bytes(), place, cursor.get().as_bytes())))
}

fn write(kind: Kind, items: &[RawJson], next: &Cursors, missing: &[&str]) -> RawJson {
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
