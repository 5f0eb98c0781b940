//! The figures of one run: as Markdown for people, as JSON for scripts.

use serde::Serialize;

use crate::calls::CallsReport;
use crate::data::DataReport;
use crate::eras::ErasReport;
use crate::gateway::GatewayReport;
use crate::idle::IdleReport;
use crate::machine::Machine;
use crate::replay::ReplayReport;
use crate::rows::Rows;
use crate::store::StoreReport;
use crate::streams::StreamsReport;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    command: String,
    machine: Machine,
    rows: Vec<Legend>,
    pub(crate) calls: Option<CallsReport>,
    pub(crate) idle: Option<IdleReport>,
    pub(crate) streams: Option<StreamsReport>,
    pub(crate) replay: Option<ReplayReport>,
    pub(crate) store: Option<StoreReport>,
    pub(crate) data: Option<DataReport>,
    pub(crate) eras: Option<ErasReport>,
    pub(crate) gateway: Option<GatewayReport>,
}

/// What a row is.
#[derive(Debug, Serialize)]
struct Legend {
    name: &'static str,
    what: &'static str,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            command: std::env::args().skip(1).fold("./dev bench".to_owned(), |line, arg| line + " " + &arg),
            machine: Machine::new(),
            rows: Vec::new(),
            calls: None,
            idle: None,
            streams: None,
            replay: None,
            store: None,
            data: None,
            eras: None,
            gateway: None,
        }
    }

    /// Says in the report what these rows are.
    pub(crate) fn describe(&mut self, rows: &Rows) {
        for row in rows.iter() {
            if self.rows.iter().all(|legend| legend.name != row.name) {
                self.rows.push(Legend { name: row.name, what: row.what });
            }
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let legend = self.rows.iter().map(|Legend { name, what }| format!("- `{name}`: {what}\n"));
        let legend = (!self.rows.is_empty()).then(|| legend.collect());
        let sections = [
            Some(format!("`{}`\n", self.command)),
            Some(self.machine.markdown()),
            legend,
            self.calls.as_ref().map(CallsReport::markdown),
            self.idle.as_ref().map(IdleReport::markdown),
            self.streams.as_ref().map(StreamsReport::markdown),
            self.replay.as_ref().map(ReplayReport::markdown),
            self.store.as_ref().map(StoreReport::markdown),
            self.data.as_ref().map(DataReport::markdown),
            self.eras.as_ref().map(ErasReport::markdown),
            self.gateway.as_ref().map(GatewayReport::markdown),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
