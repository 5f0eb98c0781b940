//! A line in the log now and then, with the totals since the start, for those who have nothing that scrapes metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_session::supervise::Loops;
use tokio_util::sync::CancellationToken;

use super::counted::Figures;

impl Figures {
    /// Writes the line until it is stopped.
    pub(crate) fn report(
        &self,
        every: Duration,
        loops: &Loops,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (figures, stopped) = (self.clone(), stop.clone());
        loops.keep("report of figures", stop, move || {
            let (figures, stop) = (figures.clone(), stopped.clone());
            async move {
                while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                    figures.write_report();
                }
            }
        })
    }

    fn write_report(&self) {
        let totals = self.totals();
        let tallies = self.0.watched.get().map(|watched| watched.sessions().tallies());
        let (total, active) = tallies.map_or((0, 0), |tallies| (tallies.created, tallies.awake));
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (tool_calls, resource_reads) = (of(&self.0.tool_calls), of(&self.0.resource_reads));
        let (answered, answered_us) = (of(&self.0.answered), of(&self.0.answered_us));
        #[expect(clippy::cast_precision_loss, reason = "means need not be exact")]
        let per = |all: f64, of: u64| if of == 0 { 0.0 } else { (all / of as f64 * 100.0).round() / 100.0 };
        #[expect(clippy::cast_precision_loss, reason = "means need not be exact")]
        let (requests, sum_ms) = (totals.calls as f64, answered_us as f64 / 1000.0);
        tracing::info!(
            total_sessions = total,
            active_sessions = active,
            total_requests = totals.calls,
            total_tool_calls = tool_calls,
            total_resource_reads = resource_reads,
            total_errors = totals.errors,
            avg_latency_ms = per(sum_ms, answered),
            requests_per_session = per(requests, total),
            "figures since the start"
        );
    }
}
