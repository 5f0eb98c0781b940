//! Both runtimes, data that outlives connections, and tasks, over fake servers and with a clock that tests turn.

mod cluster;
mod exchange;
mod newer;
mod quotas;
mod runtime;
mod state;
mod tasks;
