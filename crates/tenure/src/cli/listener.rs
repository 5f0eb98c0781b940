//! What a server says and asks while a call runs: progress and questions on a terminal, and its logs for those who
//! want them.
//!
//! All of it goes to standard error; standard output is for the result alone.

#![expect(deprecated, reason = "the next revision drops log messages; servers of today send them")]

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCapability, ErrorData,
    FormElicitationCapability, Implementation, LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::Value;

use super::ask::Asker;
use super::{note, words};
use crate::foreign;

/// How finely progress is shown.
const STEPS: u64 = 1000;

/// Letters of a message that fit beside a bar.
const MESSAGE: usize = 40;

/// Whether the server's logs are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Logs {
    Shown,
    Hidden,
}

/// Listens to a server. Clones share one bar.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    bar: Option<ProgressBar>,
    logs: Logs,
    asker: Asker,
}

impl Listener {
    pub(super) fn new(logs: Logs) -> Self {
        // Hidden until there is progress: most calls make none.
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::hidden().with_message("calling"));
        Self { bar, logs, asker: Asker::new() }
    }

    /// True while the user is asked something.
    pub(super) fn asking(&self) -> tokio::sync::watch::Receiver<bool> {
        self.asker.asking()
    }

    /// Takes the bar away, before a result is printed.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, progress: &ProgressNotificationParam) {
        let Some(bar) = &self.bar else { return };
        if let Some(message) = &progress.message {
            bar.set_message(words::short(&foreign::plain(message), MESSAGE));
        }
        let template = match progress.total.filter(|total| *total > 0.0) {
            Some(total) => {
                let share = (progress.progress / total).clamp(0.0, 1.0);
                bar.set_length(STEPS);
                bar.set_position((share * STEPS as f64) as u64);
                "{msg} {wide_bar} {percent}%".to_owned()
            }
            None => format!("{{spinner}} {{msg}} {}", progress.progress),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        if bar.is_hidden() && !bar.is_finished() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        bar.tick();
    }

    fn tell(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(line)),
            None => note(line),
        }
    }
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let about = Implementation::new("tenure", env!("CARGO_PKG_VERSION"));
        // Forms alone: a page that has to be opened is nothing for a command.
        let form = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(form);
        ClientConfig::new(capabilities, about)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let Some(bar) = &self.bar {
            // What is drawn would run through what is typed.
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        Ok(self.asker.ask(params).await)
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.show(&progress);
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if self.logs == Logs::Hidden {
            return;
        }
        let level = serde_json::to_value(message.level).unwrap_or_default();
        let level = level.as_str().unwrap_or("log").to_owned();
        let logger = message.logger.map(|logger| format!(" {logger}")).unwrap_or_default();
        let data = match message.data {
            Value::String(text) => text,
            data => data.to_string(),
        };
        self.tell(&foreign::plain(&format!("{level}{logger}: {data}")));
    }
}
