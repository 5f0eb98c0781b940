//! News as a stream: an overview each second, and what happens.
//!
//! One task makes the overview for all pages, and runs only while there are some. Each page has a short queue: what does not
//! fit is dropped and counted, and the page is told how many rows it missed. A page that reads nothing for a minute, or that
//! is no longer logged in, is let go.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::answers;
use super::api::{AdminApi, Outcome};
use super::caller::{AdminCaller, CallerShare};
use super::error::AdminError;
use crate::figures::Live;

/// Pages that follow at once, in all and of one login or key.
const MOST_PAGES: usize = 16;
const MOST_OF_ONE: usize = 8;

/// Events that wait for one page.
const QUEUE: usize = 256;

/// How often there is an overview.
const EVERY: Duration = Duration::from_secs(1);

/// How long a page may read nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all pages share.
pub(super) struct LiveFeed {
    overview: watch::Sender<Bytes>,
    pages: Arc<PageCounts>,
    /// Whether there is a task that makes overviews.
    is_made: AtomicBool,
}

impl Default for LiveFeed {
    fn default() -> Self {
        Self {
            overview: watch::Sender::new(Bytes::new()),
            pages: Arc::default(),
            is_made: AtomicBool::new(false),
        }
    }
}

/// The pages that follow, of each login or key.
#[derive(Debug, Default)]
struct PageCounts(Mutex<HashMap<CallerShare, usize>>);

/// Counts a page while it follows.
#[derive(Debug)]
struct Page {
    counts: Arc<PageCounts>,
    of: CallerShare,
}

impl PageCounts {
    fn all(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Counts one page more.
    ///
    /// # Errors
    /// When there are too many already.
    fn add(self: &Arc<Self>, of: CallerShare) -> Result<Page, AdminError> {
        let mut pages = self.0.lock();
        let too_many = |text: String| Err(AdminError::unavailable(text).hint("close one of them"));
        if pages.get(&of).is_some_and(|count| *count >= MOST_OF_ONE) {
            return too_many(format!("{MOST_OF_ONE} pages of this {} follow already", of.noun()));
        }
        if pages.values().sum::<usize>() >= MOST_PAGES {
            return too_many(format!("{MOST_PAGES} pages follow already"));
        }
        *pages.entry(of.clone()).or_default() += 1;
        Ok(Page { counts: Arc::clone(self), of })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut pages = self.counts.0.lock();
        if let Some(count) = pages.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                pages.remove(&self.of);
            }
        }
    }
}

/// The stream for one page.
pub(super) fn stream(api: &AdminApi, caller: &AdminCaller, topics: Topics) -> Result<Outcome, AdminError> {
    let feed = &api.0.live;
    let page = feed.pages.add(caller.share())?;
    if !feed.is_made.swap(true, Ordering::AcqRel) {
        let api = api.clone();
        api.0.tasks.clone().spawn(async move { make_overviews(&api).await });
    }
    let (sender, events) = mpsc::channel(QUEUE);
    let (api, caller) = (api.clone(), caller.clone());
    let overviews = feed_of(&api);
    api.0
        .tasks
        .clone()
        .spawn(async move { follow(&api, (&caller, topics), overviews, (&sender, page)).await });
    let mut answer = Response::new(EventBody(events).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Outcome::answered(answer))
}

fn feed_of(api: &AdminApi) -> watch::Receiver<Bytes> {
    api.0.live.overview.subscribe()
}

/// Makes an overview each second until no page follows.
async fn make_overviews(api: &AdminApi) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let feed = &api.0.live;
    loop {
        // A page that came after the last look finds either this task or none.
        if feed.pages.all() == 0 {
            feed.is_made.store(false, Ordering::Release);
            if feed.pages.all() == 0 || feed.is_made.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        tokio::select! {
            _ = ticks.tick() => {}
            () = api.0.stop.cancelled() => return,
        }
        let overview = event("overview", &answers::overview(api));
        feed.overview.send_replace(overview);
    }
}

/// What a page wants to hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Topics {
    WithoutCalls,
    All,
}

/// What one page waits for.
enum News {
    Overview,
    Happened(Box<Live>),
    /// So many were lost: more happened than this task could pass on.
    Lost(u64),
    Gone,
}

impl News {
    fn of(received: Result<Live, RecvError>) -> Self {
        match received {
            Ok(happened) => Self::Happened(Box::new(happened)),
            Err(RecvError::Lagged(rows)) => Self::Lost(rows),
            Err(RecvError::Closed) => Self::Gone,
        }
    }
}

async fn follow(
    api: &AdminApi,
    (caller, topics): (&AdminCaller, Topics),
    mut overviews: watch::Receiver<Bytes>,
    (sender, _page): (&mpsc::Sender<Bytes>, Page),
) {
    // So that a page has something at once, and not only with the next second.
    let mut queue = EventQueue { sender, dropped: 0, full_since: None };
    queue.offer(event("overview", &answers::overview(api)));
    let mut happening = api.0.runtimes.figures.subscribe();
    loop {
        let news = tokio::select! {
            changed = overviews.changed() => if changed.is_ok() { News::Overview } else { News::Gone },
            happened = happening.recv() => News::of(happened),
            () = sender.closed() => News::Gone,
            () = api.0.stop.cancelled() => News::Gone,
        };
        match news {
            News::Gone => return,
            News::Lost(rows) => queue.dropped += rows,
            // Written for each page, so they cost something where many calls end.
            News::Happened(happened) => match *happened {
                Live::Call(_) if topics == Topics::WithoutCalls => {}
                Live::Call(call) => queue.offer(event("call", &call)),
                Live::Session(session) => queue.offer(event("session", &session)),
            },
            News::Overview => {
                if !caller.is_welcome() || queue.is_abandoned() {
                    return;
                }
                let overview = overviews.borrow_and_update().clone();
                queue.offer(overview);
            }
        }
    }
}

/// The queue of one page.
struct EventQueue<'a> {
    sender: &'a mpsc::Sender<Bytes>,
    /// Rows that did not fit, and that the page does not know of.
    dropped: u64,
    full_since: Option<Instant>,
}

impl EventQueue<'_> {
    fn offer(&mut self, event_bytes: Bytes) {
        if self.dropped > 0 {
            #[derive(Serialize)]
            struct Dropped {
                rows: u64,
            }
            match self.sender.try_send(event("dropped", &Dropped { rows: self.dropped })) {
                Ok(()) => self.dropped = 0,
                Err(_) => {
                    self.dropped += 1;
                    return;
                }
            }
        }
        match self.sender.try_send(event_bytes) {
            Ok(()) => self.full_since = None,
            Err(_) => {
                self.dropped += 1;
                self.full_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Whether the page has read nothing for too long.
    fn is_abandoned(&self) -> bool {
        self.full_since.is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

/// An event of the stream.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut bytes = format!("event: {name}\ndata: ").into_bytes();
    // JSON on one line, in which no text can end the event.
    serde_json::to_writer(&mut bytes, data).expect("an event has a JSON form");
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

/// The body of the answer; ends with the task that feeds it.
struct EventBody(mpsc::Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_told_later() {
        let (sender, mut events) = mpsc::channel(2);
        let mut queue = EventQueue { sender: &sender, dropped: 0, full_since: None };
        for number in 0..5 {
            queue.offer(event("call", &number));
        }
        assert_eq!((queue.dropped, queue.full_since.is_some()), (3, true));
        let mut next = || String::from_utf8(events.try_recv().unwrap().to_vec()).unwrap();
        assert_eq!([next(), next()], ["event: call\ndata: 0\n\n", "event: call\ndata: 1\n\n"]);
        queue.offer(event("call", &"a\nb"));
        let mut next = || String::from_utf8(events.try_recv().unwrap().to_vec()).unwrap();
        assert_eq!(next(), "event: dropped\ndata: {\"rows\":3}\n\n");
        assert_eq!(next(), "event: call\ndata: \"a\\nb\"\n\n", "a text cannot end the event");
        assert!(queue.full_since.is_none());
    }
}
