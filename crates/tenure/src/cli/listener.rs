//! The server's messages while a call runs: progress and questions on a terminal, and its logs if they are wanted.
//!
//! They all go to standard error; standard output has only the result.

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
use crate::escape;

/// The steps of a full progress bar.
const STEPS: u64 = 1000;

/// Letters of a message that fit next to a bar.
const MESSAGE: usize = 40;

/// Whether the server's logs are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Logs {
    Shown,
    Hidden,
}

/// Handles the server's notifications and questions during a command. Clones share one progress bar.
#[derive(Clone, Debug)]
pub(super) struct CallListener {
    bar: Option<ProgressBar>,
    logs: Logs,
    asker: Asker,
}

impl CallListener {
    pub(super) fn new(logs: Logs) -> Self {
        // Hidden until there is progress: most calls report none.
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::hidden().with_message("calling"));
        Self { bar, logs, asker: Asker::new() }
    }

    /// True while the user is asked something.
    pub(super) fn asking(&self) -> tokio::sync::watch::Receiver<bool> {
        self.asker.asking()
    }

    /// Removes the bar, before a result is printed.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, progress: &ProgressNotificationParam) {
        let Some(bar) = &self.bar else { return };
        if let Some(message) = &progress.message {
            bar.set_message(words::short(&escape::plain(message), MESSAGE));
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

impl ClientHandler for CallListener {
    fn get_info(&self) -> ClientConfig {
        let about = Implementation::new("tenure", env!("CARGO_PKG_VERSION"));
        // Only forms: a command cannot open a web page.
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
            // The bar would be drawn over the user's input.
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
        self.tell(&escape::plain(&format!("{level}{logger}: {data}")));
    }
}
