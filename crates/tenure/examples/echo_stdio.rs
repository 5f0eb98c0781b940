//! A small MCP server over standard input and output, on raw lines: for tests and benchmarks of the gateway.
//!
//! It answers every request with its own method and params, as the bytes they were. A few tools misbehave when they
//! are called: they exit, print what is no message, stay when they are told to leave, leave processes behind. Whatever
//! takes time runs on a thread of its own; the main thread reads, answers, and writes when no more input is at hand.
//! It knows sessions; with `--eras modern` it knows revision 2026-07-28 in place of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How often to look for something that is not announced.
const LOOK: Duration = Duration::from_millis(5);

fn main() -> std::io::Result<()> {
    let eras = std::env::args().skip_while(|arg| arg != "--eras").nth(1);
    let server = Arc::new(Server {
        is_modern: eras.as_deref() == Some("modern"),
        output: Mutex::new(File::from(std::io::stdout().as_fd().try_clone_to_owned()?)),
        heard: Mutex::default(),
        asked: Mutex::default(),
        next_id: AtomicU64::new(1),
        stays: AtomicBool::new(false),
    });
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut input = BufReader::with_capacity(64 << 10, input);
    let (mut line, mut answers) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? > 0 {
        match serde_json::from_slice::<Envelope<'_>>(&line) {
            Ok(message) => server.take(&message, &mut answers),
            Err(error) => eprintln!("not a message: {error}"),
        }
        line.clear();
        // A line that has not come whole can wait for long, and these answers must not.
        if !answers.is_empty() && memchr(input.buffer()).is_none() {
            server.write(&answers);
            answers.clear();
        }
    }
    while server.stays.load(Ordering::Relaxed) {
        std::thread::park();
    }
    Ok(())
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta", default)]
    meta: Meta,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(rename = "progressToken")]
    progress_token: Option<Value>,
}

struct Server {
    /// Whether it knows requests that stand alone, and no sessions.
    is_modern: bool,
    output: Mutex<File>,
    /// Everything that came and was no plain request, as the lines it was: for tests.
    heard: Mutex<Vec<String>>,
    /// Who waits for the client's answers.
    asked: Mutex<HashMap<u64, Sender<String>>>,
    next_id: AtomicU64,
    /// Does not leave when its input ends.
    stays: AtomicBool,
}

impl Server {
    /// Answers at once into `answers`, or later from a thread.
    fn take(self: &Arc<Self>, message: &Envelope<'_>, answers: &mut Vec<u8>) {
        match (&message.method, message.id) {
            (Some(method), Some(id)) => self.request(id, method, message.params, answers),
            (Some(method), None) => self.hear(method, message.params),
            (None, Some(id)) => self.answered(id, message.result.or(message.error)),
            (None, None) => {}
        }
    }

    fn request(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        answers: &mut Vec<u8>,
    ) {
        let result = match (method, params) {
            ("server/discover", _) if self.is_modern => discovered().to_string(),
            ("initialize", _) if self.is_modern => {
                let error = json!({ "code": -32601, "message": "Method not found: initialize" });
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.get());
                answers.extend_from_slice(answer.as_bytes());
                return answers.push(b'\n');
            }
            ("initialize", _) => {
                self.hear(method, params);
                introduction(params).to_string()
            }
            ("tools/list", _) => tools().to_string(),
            ("tools/call", Some(params)) => match serde_json::from_str::<Named<'_>>(params.get()) {
                Ok(call) => match self.tool(id, call) {
                    Some(result) => result,
                    None => return,
                },
                Err(_) => return echo(id, method, Some(params), answers),
            },
            ("logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", _) => {
                self.hear(method, params);
                "{}".to_owned()
            }
            // Says back the params themselves, as a result and as an error.
            ("echo/result", Some(params)) => params.get().to_owned(),
            ("echo/error", Some(params)) => {
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#, id.get(), params.get());
                answers.extend_from_slice(answer.as_bytes());
                return answers.push(b'\n');
            }
            _ => return echo(id, method, params, answers),
        };
        answers.extend_from_slice(answer(id, &result).as_bytes());
    }

    /// A tool's result, unless it comes later or never.
    fn tool(self: &Arc<Self>, id: &RawValue, call: Named<'_>) -> Option<String> {
        let arguments = call.arguments.map_or("{}", RawValue::get);
        if call.name == "public_echo" {
            #[derive(Deserialize)]
            struct Text<'a> {
                #[serde(borrow)]
                text: &'a RawValue,
            }
            let text = serde_json::from_str::<Text<'_>>(arguments).map_or(r#""""#, |text| text.text.get());
            // Results of the modern era say what they are.
            let kind = if self.is_modern { r#""resultType":"complete","# } else { "" };
            return Some(format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}]}}"#));
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let number = |name: &str, default: u64| arguments[name].as_u64().unwrap_or(default);
        let word = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        match &*call.name {
            "exit" => {
                let said = word("stderr");
                if !said.is_empty() {
                    eprintln!("{said}");
                }
                std::process::exit(i32::try_from(number("code", 0)).unwrap_or(1));
            }
            "garbage" => self.write(b"Listening on stdio...\n\n{\"half\":\n[1,2,3]\n\xff\xfe\n"),
            "long_line" => {
                let mut line = vec![b'x'; usize::try_from(number("bytes", 0)).unwrap_or_default()];
                line.push(b'\n');
                self.write(&line);
            }
            "long_answer" => {
                let result =
                    json!({ "text": "x".repeat(usize::try_from(number("bytes", 0)).unwrap_or_default()) });
                match word("id").as_str() {
                    "last" => self.write(
                        format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{}}}\n", id.get())
                            .as_bytes(),
                    ),
                    _ => self.write(answer(id, &result.to_string()).as_bytes()),
                }
                return None;
            }
            "say" => eprintln!("{}", word("text")),
            // As it is written, line by line.
            "print" => self.write(format!("{}\n", word("line")).as_bytes()),
            "log" => {
                self.notify("notifications/message", &json!({ "level": word("level"), "data": word("data") }))
            }
            "update" => self.notify("notifications/resources/updated", &json!({ "uri": word("uri") })),
            "heard" => {
                let heard = lock(&self.heard).clone();
                return Some(json!({ "pid": std::process::id(), "heard": heard }).to_string());
            }
            "hold" => return None,
            "ask" => {
                let (server, id) = (Arc::clone(self), id.get().to_owned());
                let (method, params) = (word("method"), arguments["params"].clone());
                std::thread::spawn(move || {
                    let reply = server.ask(&method, &params);
                    server.write(answer_raw(&id, &format!(r#"{{"answer":{reply}}}"#)).as_bytes());
                });
                return None;
            }
            "slow" | "slow_safe" => {
                let (server, id) = (Arc::clone(self), id.get().to_owned());
                let (steps, gate) = (number("steps", 3), PathBuf::from(word("gate")));
                let token = call.meta.progress_token;
                std::thread::spawn(move || server.work(&id, token.as_ref(), steps, &gate));
                return None;
            }
            "ignore_end" => self.stays.store(true, Ordering::Relaxed),
            "ignore_sigterm" => ignore_sigterm(),
            "leave_child" => leave_child(&word("holds")),
            "allocate" => {
                let bytes = usize::try_from(number("bytes", 0)).unwrap_or_default();
                let mut room = Vec::<u8>::new();
                return Some(json!({ "allocated": room.try_reserve_exact(bytes).is_ok() }).to_string());
            }
            "open_files" => {
                let many = (0..number("count", 0)).map_while(|_| File::open("/dev/null").ok());
                return Some(json!({ "opened": many.collect::<Vec<_>>().len() }).to_string());
            }
            name => {
                return Some(
                    json!({ "method": "tools/call", "tool": name, "arguments": arguments }).to_string(),
                );
            }
        }
        Some(r#"{"content":[]}"#.to_owned())
    }

    /// Reports progress before the gate is opened and at every step after it.
    fn work(&self, id: &str, token: Option<&Value>, steps: u64, gate: &std::path::Path) {
        for step in 1..=steps {
            if let Some(token) = token {
                let params = json!({ "progressToken": token, "progress": step, "total": steps });
                self.notify("notifications/progress", &params);
            }
            while !gate.as_os_str().is_empty() && !gate.exists() {
                std::thread::sleep(LOOK);
            }
        }
        let text = format!("did {steps} steps");
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        self.write(answer_raw(id, &result.to_string()).as_bytes());
    }

    /// Asks the client and waits for what it says.
    fn ask(&self, method: &str, params: &Value) -> String {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = channel();
        lock(&self.asked).insert(id, tell);
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(format!("{request}\n").as_bytes());
        answer.recv().unwrap_or_else(|_| "null".to_owned())
    }

    fn answered(&self, id: &RawValue, outcome: Option<&RawValue>) {
        let waiting = id.get().parse().ok().and_then(|id: u64| lock(&self.asked).remove(&id));
        if let Some(waiting) = waiting {
            // The caller may have given up.
            let _ = waiting.send(outcome.map_or("null", RawValue::get).to_owned());
        }
    }

    fn hear(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        let heard = params.map_or_else(|| method.to_owned(), |params| format!("{method} {}", params.get()));
        lock(&self.heard).push(heard);
        if method == "notifications/initialized" && std::env::var_os("ASK_ROOTS").is_some() {
            // Many servers do that: they want to know where they may work before anything is asked of them.
            let server = Arc::clone(self);
            std::thread::spawn(move || {
                let roots = server.ask("roots/list", &json!({}));
                lock(&server.heard).push(format!("roots {roots}"));
            });
        }
    }

    fn notify(&self, method: &str, params: &Value) {
        self.write(
            format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params })).as_bytes(),
        );
    }

    /// Whole lines, so that threads do not come between.
    fn write(&self, lines: &[u8]) {
        if lock(&self.output).write_all(lines).is_err() && !self.stays.load(Ordering::Relaxed) {
            std::process::exit(0);
        }
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(id: &RawValue, result: &str) -> String {
    answer_raw(id.get(), result)
}

fn answer_raw(id: &str, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
}

/// The way of nearly every request in a benchmark: nothing is copied but into the buffer that is written.
fn echo(id: &RawValue, method: &str, params: Option<&RawValue>, answers: &mut Vec<u8>) {
    let method = serde_json::to_string(method).unwrap_or_default();
    for part in [
        r#"{"jsonrpc":"2.0","id":"#,
        id.get(),
        r#","result":{"method":"#,
        &method,
        r#","params":"#,
        params.map_or("null", RawValue::get),
        "}}\n",
    ] {
        answers.extend_from_slice(part.as_bytes());
    }
}

fn introduction(params: Option<&RawValue>) -> Value {
    let params: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
    json!({
        "protocolVersion": params["protocolVersion"],
        "capabilities": {
            "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "completions": {}, "logging": {},
        },
        "serverInfo": { "name": "echo-stdio", "version": "1" },
    })
}

fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "echo-stdio", "version": "1" },
        "ttlMs": 3_600_000,
        "cacheScope": "public",
    })
}

fn tools() -> Value {
    let tool = |name: &str, read_only: bool| json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": read_only } });
    json!({ "tools": [tool("public_echo", true), tool("slow", false), tool("slow_safe", true), tool("hold", false), tool("heard", true)] })
}

/// From here on SIGTERM is caught and nothing comes of it.
fn ignore_sigterm() {
    let (tell, caught) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let kind = tokio::signal::unix::SignalKind::terminate();
            let Ok(mut signal) = tokio::signal::unix::signal(kind) else { return };
            let _ = tell.send(());
            loop {
                signal.recv().await;
            }
        });
    });
    // An error: it could not be caught, and a test will notice.
    let _ = caught.recv();
}

/// Starts a process that outlives us and ignores SIGTERM. `holds` says whether it keeps our output open, in our group
/// or in one of its own.
fn leave_child(holds: &str) {
    let script = "trap '' TERM HUP; echo ready >&2; while :; do sleep 1; done";
    let mut command = match holds {
        "output" => Command::new("setsid"),
        _ => Command::new("env"),
    };
    command.args(["sh", "-c", script]).stdin(Stdio::null()).stderr(Stdio::piped());
    if holds != "output" {
        command.stdout(Stdio::null());
    }
    if let Ok(mut child) = command.spawn() {
        // Not before it ignores what it shall ignore.
        let mut ready = [0; 6];
        let _ = child.stderr.take().map(|mut said| said.read_exact(&mut ready));
    }
}
