//! The client's end of a pair of pipes: exact lines out, and every line back has to be a message.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use crate::support::session::{initialize_params, notification, request};
use crate::support::wait::within;

/// The client's end.
pub(crate) struct Talk {
    /// Closed when it is gone.
    input: Option<Box<dyn AsyncWrite + Unpin + Send>>,
    output: Option<BufReader<Box<dyn AsyncRead + Unpin + Send>>>,
}

impl Talk {
    pub(crate) fn new(
        input: impl AsyncWrite + Unpin + Send + 'static,
        output: impl AsyncRead + Unpin + Send + 'static,
    ) -> Self {
        Self { input: Some(Box::new(input)), output: Some(BufReader::new(Box::new(output))) }
    }

    /// Writes bytes as they are.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("the input is open");
        within("write", input.write_all(bytes.as_ref())).await.expect("written");
        within("flush", input.flush()).await.expect("flushed");
    }

    /// Sends a message on a line of its own.
    pub(crate) async fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n")).await;
    }

    pub(crate) async fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.send(&request(id, method, params)).await;
    }

    /// Calls a tool that reports its progress under the id of the call.
    pub(crate) async fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        self.request(id, "tools/call", &params).await;
    }

    pub(crate) async fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id });
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let output = self.output.as_mut().expect("the output is open");
        within("a line", output.read_until(b'\n', &mut line)).await.expect("read");
        if line.is_empty() {
            return None;
        }
        assert_eq!(line.pop(), Some(b'\n'), "a line is cut off: {:?}", String::from_utf8_lossy(&line));
        let text = String::from_utf8(line).expect("UTF-8");
        assert!(!text.contains('\r'), "{text:?}");
        let message: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("not a message: {text:?}"));
        assert_eq!(message["jsonrpc"], "2.0", "{text}");
        assert_ne!(message.get("id"), Some(&Value::Null), "{text}");
        Some(message)
    }

    /// The next message, which must come.
    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("a message before the end")
    }

    /// Everything up to the end.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        rest
    }

    /// What an echo comes back as; nothing else must come before it.
    pub(crate) async fn echo(&mut self, id: u64) {
        self.call(id, "public_echo", &json!({ "text": "hello" })).await;
        let answer = self.message().await;
        assert_eq!((&answer["id"], text(&answer)), (&json!(id), "hello"));
    }

    /// Opens a session of the newest revision.
    pub(crate) async fn shake_hands(&mut self) {
        self.shake_hands_as("2025-11-25").await;
    }

    pub(crate) async fn shake_hands_as(&mut self, revision: &str) {
        self.request(0, "initialize", &initialize_params(revision)).await;
        let answer = self.message().await;
        assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(0), &json!(revision)));
        self.send(&notification("notifications/initialized")).await;
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn close_output(&mut self) {
        self.output = None;
    }
}

/// The text of a tool's result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Whom an error answers, and the word for it.
pub(crate) fn fault(message: &Value) -> (Option<&Value>, &str) {
    let reason = message["error"]["data"]["reason"].as_str().unwrap_or_else(|| panic!("no error: {message}"));
    (message.get("id"), reason)
}
