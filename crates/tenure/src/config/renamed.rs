//! Names of settings in other documents and earlier versions, and their present names.
//!
//! A renamed setting must fail with its new name: if it were ignored, the server would run with a value that the
//! operator did not choose.

/// What replaces an old name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Became {
    /// It is called this now.
    Key(&'static str),
    /// It is not needed any more, for this reason.
    Gone(&'static str),
}

const BY_DEADLINE: &str =
    "every session and event expires at its own deadline, so nothing is swept at intervals";
const BY_STORE: &str = "`store` chooses the engine that several nodes share";
const BY_ENGINE: &str = "the engine named by `store` arranges its own files and tables";

/// Old names, with what replaces each.
pub(super) const RENAMED: &[(&str, Became)] = &[
    ("session_timeout_ms", Became::Key("session.idle_ttl")),
    ("session_timeout", Became::Key("session.idle_ttl")),
    ("session_ttl", Became::Key("session.idle_ttl")),
    ("session.timeout", Became::Key("session.idle_ttl")),
    ("session.ttl", Became::Key("session.idle_ttl")),
    ("cleanup_interval_ms", Became::Gone(BY_DEADLINE)),
    ("cleanup_interval", Became::Gone(BY_DEADLINE)),
    ("session_backend_opts.cleanup_interval", Became::Gone(BY_DEADLINE)),
    ("sse.cleanup_interval", Became::Gone(BY_DEADLINE)),
    ("sse_cleanup_interval", Became::Gone(BY_DEADLINE)),
    ("sse.event_ttl", Became::Key("streams.event_ttl")),
    ("sse_event_ttl", Became::Key("streams.event_ttl")),
    ("sse.replay_window", Became::Key("streams.event_ttl")),
    ("sse_replay_window", Became::Key("streams.event_ttl")),
    ("sse.max_session_events", Became::Key("streams.max_session_events")),
    ("sse_max_session_events", Became::Key("streams.max_session_events")),
    ("sse.retry", Became::Key("streams.retry")),
    ("sse_retry", Became::Key("streams.retry")),
    ("sse.keep_alive", Became::Key("http.keep_alive")),
    ("sse.keep_alive_interval", Became::Key("http.keep_alive")),
    ("keep_alive", Became::Key("http.keep_alive")),
    ("keep_alive_interval", Became::Key("http.keep_alive")),
    ("keepalive", Became::Key("http.keep_alive")),
    ("keepalive_interval", Became::Key("http.keep_alive")),
    ("request_timeout_ms", Became::Key("timeouts.request")),
    ("request_timeout", Became::Key("timeouts.request")),
    ("host", Became::Key("listen")),
    ("port", Became::Key("listen")),
    ("address", Became::Key("listen")),
    ("bind", Became::Key("listen")),
    ("session_backend", Became::Key("store")),
    ("session_backend_opts.file_path", Became::Key("store")),
    ("session_backend_opts.table_name", Became::Gone(BY_ENGINE)),
    ("session_backend_opts.auto_save", Became::Gone(BY_ENGINE)),
    ("session_backend_opts.disc_copies", Became::Gone(BY_ENGINE)),
    ("wait_for_tables", Became::Gone(BY_ENGINE)),
    ("session_backend_opts.nodes", Became::Gone(BY_STORE)),
    ("cluster_nodes", Became::Gone(BY_STORE)),
    ("replication_batch_timeout_ms", Became::Gone(BY_STORE)),
    ("failover_detection_interval_ms", Became::Gone(BY_STORE)),
    ("redis.host", Became::Gone(BY_STORE)),
    ("redis.port", Became::Gone(BY_STORE)),
    ("redis_host", Became::Gone(BY_STORE)),
    ("redis_port", Became::Gone(BY_STORE)),
];
