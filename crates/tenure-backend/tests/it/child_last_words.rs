//! A child that writes much, answers, and ends, while the session's log is slow.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::soon;
use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_session::session::Answer;
use tenure_session::{Limits, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime::{self, json_of, send};
use tokio::task::JoinHandle;

/// Notifications before the answer.
const LINES: usize = 50;

/// Answers one request after many notifications, and ends. Writes its process id to the file `pid`.
const SERVER: &str = r#"
read -r initialize
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sh","version":"1"}}}'
read -r initialized
read -r call
id=${call#*\"id\":}; id=${id%%,*}
token=${call#*\"progressToken\":}; token=${token%%\}*}
i=0
while [ $i -lt 50 ]; do
    i=$((i+1))
    echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":$i}}"
done
echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"of\":$id}}"
echo $$ > pid
"#;

struct World {
    sessions: Sessions,
    session: Arc<Session>,
    store: Arc<Faulty>,
    folder: PathBuf,
}

impl World {
    /// A session whose log has room for very few bytes.
    async fn new(name: &str, is_shared: bool) -> Self {
        let folder = std::env::temp_dir().join(format!("tenure-last-words-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = ChildCommand::new("sh", ["-c", SERVER]);
        (command.folder, command.is_shared) = (Some(folder.clone()), is_shared);
        command.limits = ChildLimits { warm: 0, grace: Duration::from_millis(100), ..ChildLimits::default() };
        let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
        let limits = Limits { max_unstored_bytes: 512, json_wait: Duration::ZERO, ..Limits::default() };
        let backend = Arc::new(ChildBackend::new(command, None));
        let sessions = runtime::start(Arc::clone(&store) as _, backend, limits);
        let session = runtime::session(&sessions, "2025-11-25").await;
        Self { sessions, session, store, folder }
    }

    fn ask(&self, id: u64, method: &str) -> JoinHandle<Answer> {
        send(&self.session, runtime::request(id, method, &json!({ "_meta": { "progressToken": id } })))
    }

    /// Resolves when the server has ended, and longer ago than the reader's timeouts.
    async fn server_is_long_gone(&self) {
        let gone = async {
            let is_running = |pid: &str| Path::new("/proc").join(pid.trim()).exists();
            while std::fs::read_to_string(self.folder.join("pid"))
                .map_or(true, |pid| pid.is_empty() || is_running(&pid))
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(gone).await;
        tokio::time::pause();
        for _ in 0..50 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        tokio::time::resume();
    }

    async fn end(self) {
        self.sessions.shut_down(Duration::ZERO).await;
        std::fs::remove_dir_all(self.folder).unwrap();
    }
}

/// All messages of a request.
async fn all(asked: JoinHandle<Answer>) -> Vec<Value> {
    let all = async {
        match asked.await.unwrap() {
            Answer::Stream(mut reader) => runtime::events(&mut reader).await,
            answer => vec![json_of(answer)],
        }
    };
    soon(all).await
}

/// Asserts that all messages came, in order.
fn assert_whole(said: &[Value], id: u64) {
    let (answer, lines) = said.split_last().unwrap();
    assert!(answer["result"]["of"].is_u64() && answer["id"] == id, "{answer}");
    let lines: Vec<_> = lines.iter().map(|line| line["params"]["progress"].as_u64().unwrap()).collect();
    assert_eq!(lines, (1..=LINES as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn all_that_a_server_wrote_arrives_though_it_ends_while_the_log_is_slow() {
    for is_shared in [false, true] {
        let world = World::new("slow-log", is_shared).await;
        world.store.hold_appends();
        let asked = world.ask(1, "tools/call");
        world.server_is_long_gone().await;
        world.store.release_appends();
        assert_whole(&all(asked).await, 1);
        world.end().await;
    }
}

/// The next request cannot be written, and that failure must not stop the reader.
#[tokio::test]
async fn all_that_a_server_wrote_arrives_though_the_next_request_finds_it_gone() {
    for is_shared in [false, true] {
        let world = World::new("next-request", is_shared).await;
        world.store.hold_appends();
        let asked = world.ask(1, "tools/call");
        world.server_is_long_gone().await;
        let next = world.ask(2, "tools/list");
        world.server_is_long_gone().await;
        world.store.release_appends();
        assert_whole(&all(asked).await, 1);
        // The first server did not take it, so another one may get it.
        assert_whole(&all(next).await, 2);
        world.end().await;
    }
}
