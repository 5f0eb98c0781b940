//! Traces, from the configuration and the variables of OpenTelemetry, and the places where spans begin. A program without the feature
//! `otlp` traces nothing.

use std::sync::Arc;

use tenure_session::backend::Backend;
use tenure_session::supervise::Loops;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::failure::Failure;
use crate::figures::Figures;
#[cfg(feature = "otlp")]
use crate::traces::{SpanCounts, TraceSettings, Tracer};

/// What traces requests, if anything does. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    tracer: Option<Tracer>,
    /// Cancelled when no more spans end.
    over: CancellationToken,
}

#[cfg(feature = "otlp")]
impl Traces {
    /// As the configuration says.
    pub(super) fn new(config: &Config, figures: &Figures) -> Result<Self, Failure> {
        let traces = &config.traces;
        let variable = |name: &str| std::env::var(name).ok();
        let settings = TraceSettings::read(traces.endpoint.as_deref(), traces.sample, variable)?;
        let (exported, dropped) = figures.of_spans();
        let tracer =
            settings.map(|settings| Tracer::new(settings, SpanCounts { exported, dropped })).transpose()?;
        Ok(Self { tracer, over: CancellationToken::new() })
    }

    /// In front of everything.
    pub(super) fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match &self.tracer {
            Some(tracer) => tracer.in_front(backend),
            None => backend,
        }
    }

    /// Right in front of one server.
    pub(super) fn in_front_of_server(
        &self,
        backend: Arc<dyn Backend>,
        name: Option<&str>,
        target: &str,
    ) -> Arc<dyn Backend> {
        match &self.tracer {
            Some(tracer) => tracer.in_front_of_server(backend, name, target),
            None => backend,
        }
    }

    /// Sends spans until it is closed.
    pub(crate) fn spawn(&self, tasks: &TaskTracker, loops: &Loops) {
        if let Some(tracer) = &self.tracer {
            tasks.spawn(tracer.run(loops, self.over.clone()));
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    /// Fails if traces are asked for.
    pub(super) fn new(config: &Config, _: &Figures) -> Result<Self, Failure> {
        match config.traces.endpoint {
            Some(_) => Err(Failure::new("this program was built without traces")
                .hint("build it with the feature `otlp`, or remove `traces.endpoint`")),
            None => Ok(Self::default()),
        }
    }

    /// The server itself.
    pub(super) fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        backend
    }

    /// The server itself.
    pub(super) fn in_front_of_server(
        &self,
        backend: Arc<dyn Backend>,
        _: Option<&str>,
        _: &str,
    ) -> Arc<dyn Backend> {
        backend
    }

    /// Nothing to do.
    pub(crate) fn spawn(&self, _: &TaskTracker, _: &Loops) {}
}

impl Traces {
    /// No more spans end: those that wait are sent, within a short time.
    pub(crate) fn close(&self) {
        self.over.cancel();
    }
}
