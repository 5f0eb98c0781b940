//! What people read when names are wrong, files are not TOML, or values do not fit together.

use expect_test::expect;

use super::super::Sources;
use super::{env, fails, file, flags, pairs, warns};

#[test]
fn unknown_names_lead_to_the_closest() {
    fails(
        &file("[session]\nidle_tll = \"5m\"\n"),
        &expect![[r#"
        error: tenure.toml:2: unknown key `session.idle_tll`

        hint: did you mean `session.idle_ttl`?
    "#]],
    );
    fails(
        &file("\n[sessions]\nidle_ttl = \"5m\"\n"),
        &expect![[r#"
        error: tenure.toml:3: unknown key `sessions.idle_ttl`

        hint: did you mean `session.idle_ttl`?
    "#]],
    );
    fails(
        &file("idle-ttl = \"5m\"\n"),
        &expect![[r#"
            error: tenure.toml:1: unknown key `idle-ttl`

            hint: did you mean `data_sessions.idle_ttl`?
        "#]],
    );
    fails(
        &file("\"session.idle_ttl\" = \"5m\"\n"),
        &expect![[r#"
        error: tenure.toml:1: unknown key `"session.idle_ttl"`

        hint: did you mean `session.idle_ttl`?
    "#]],
    );
    fails(
        &file("colour = \"red\"\n"),
        &expect![[r#"
            error: tenure.toml:1: unknown key `colour`

            hint: the closest known name is `child.folder`
        "#]],
    );
    fails(
        &file("[rate_limit]\n"),
        &expect![[r#"
            error: tenure.toml:1: unknown section `rate_limit`

            hint: the sections are cluster, control, nats, log, audit, admin, metrics, traces, tls, auth, http, doors, child, upstream, clients, limits, session, data_sessions, streams, exchanges, tasks, bridge, timeouts, shutdown
        "#]],
    );
    fails(
        &file("[session.limits.more]\nidle_ttl = \"5m\"\n"),
        &expect![[r#"
        error: tenure.toml:2: unknown key `session.limits.more.idle_ttl`

        hint: the closest known name is `session.tombstone_ttl`
    "#]],
    );
    fails(
        &env(&[("TENURE_SESION_IDLE_TTL", "5m")]),
        &expect![[r#"
        error: unknown variable `TENURE_SESION_IDLE_TTL`

        hint: did you mean `TENURE_SESSION_IDLE_TTL`?
    "#]],
    );
    fails(
        &flags(&[("session.idel_ttl", "5m")]),
        &expect![[r#"
        error: `--set`: unknown key `session.idel_ttl`

        hint: did you mean `session.idle_ttl`?
    "#]],
    );
}

#[test]
fn renamed_names_lead_to_the_new_ones() {
    fails(
        &file("session_timeout_ms = 5400000\n"),
        &expect![[r#"
        error: tenure.toml:1: `session_timeout_ms` is called `session.idle_ttl` here

        hint: write `session.idle_ttl = "1h30m"`
    "#]],
    );
    fails(
        &file("[sse]\nreplay_window = \"1d\"\n"),
        &expect![[r#"
        error: tenure.toml:2: `sse.replay_window` is called `streams.event_ttl` here

        hint: `streams.event_ttl` takes a duration such as "30s" or "1h30m"
    "#]],
    );
    fails(
        &file("sse.max_session_events = 10000\n"),
        &expect![[r#"
        error: tenure.toml:1: `sse.max_session_events` is called `streams.max_session_events` here

        hint: `streams.max_session_events` takes a whole number from 1 to 100000000
    "#]],
    );
    fails(
        &file("[session_backend_opts]\nfile_path = \"data/sessions.dets\"\n"),
        &expect![[r#"
            error: tenure.toml:2: `session_backend_opts.file_path` is called `store` here

            hint: `store` takes the URL of a store such as "disk:/var/lib/tenure", "memory:" or "nats://127.0.0.1:4222"
        "#]],
    );
    fails(
        &file("cleanup_interval_ms = 60000\n"),
        &expect![[r#"
        error: tenure.toml:1: `cleanup_interval_ms` is not needed

        hint: remove it: every session and event expires at its own deadline, so nothing is swept at intervals
    "#]],
    );
    fails(
        &file("cluster_nodes = []\n"),
        &expect![[r#"
        error: tenure.toml:1: `cluster_nodes` is not needed

        hint: remove it: `store` chooses the engine that several nodes share
    "#]],
    );
    fails(
        &env(&[("TENURE_SSE_EVENT_TTL", "3600000")]),
        &expect![[r#"
        error: `TENURE_SSE_EVENT_TTL` is called `TENURE_STREAMS_EVENT_TTL` here

        hint: write `TENURE_STREAMS_EVENT_TTL=1h`
    "#]],
    );
    fails(
        &env(&[("TENURE_SESSION_BACKEND", "ets")]),
        &expect![[r#"
            error: `TENURE_SESSION_BACKEND` is called `TENURE_STORE` here

            hint: `TENURE_STORE` takes the URL of a store such as "disk:/var/lib/tenure", "memory:" or "nats://127.0.0.1:4222"
        "#]],
    );
}

#[test]
fn a_file_that_is_not_toml() {
    fails(
        &file("[session]\nidle_ttl = 5m\n"),
        &expect![[r#"
        error: tenure.toml:2: not valid TOML: string values must be quoted, expected literal string
    "#]],
    );
    fails(
        &file("[session\n"),
        &expect![[r#"
        error: tenure.toml:1: not valid TOML: unclosed table, expected `]`
    "#]],
    );
    fails(
        &file("listen = \"a\"\nlisten = \"b\"\n"),
        &expect![[r#"
        error: tenure.toml:2: not valid TOML: duplicate key
    "#]],
    );
}

#[test]
fn values_that_contradict_each_other() {
    fails(
        &file("\n[tls]\ncert = \"cert.pem\"\n"),
        &expect![[r#"
        error: tenure.toml:3: `tls.cert` is set and `tls.key` is not

        hint: TLS needs both: set `tls.key` too, or remove `tls.cert`
    "#]],
    );
    fails(
        &env(&[("TENURE_TLS_KEY", "key.pem")]),
        &expect![[r#"
        error: `TENURE_TLS_KEY` is set and `tls.cert` is not

        hint: TLS needs both: set `tls.cert` too, or remove `tls.key`
    "#]],
    );
    fails(
        &file("[timeouts]\nrequest = \"2h\"\n"),
        &expect![[r#"
        error: `timeouts.request` (2h, tenure.toml:2) is longer than `timeouts.max_request` (1h, default)

        hint: a request ends at `timeouts.max_request` in any case: raise it, or lower the other
    "#]],
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let sources = Sources {
        env: pairs(&[("TENURE_STOER", "memory:"), ("TENURE_LISTEN", "nowhere")]),
        flags: pairs(&[("profile", "big")]),
        ..file("session_timeout_ms = 1000\n[http]\nmax_body = \"x\"\n[session]\nidle_tll = 1\n")
    };
    fails(
        &sources,
        &expect![[r#"
            error: the configuration has 6 problems
              tenure.toml:1: `session_timeout_ms` is called `session.idle_ttl` here
                hint: write `session.idle_ttl = "1s"`
              tenure.toml:3: `http.max_body` is "x", expected a size such as "4MiB" or 65536
                hint: the units are B, KiB, MiB and GiB
              tenure.toml:5: unknown key `session.idle_tll`
                hint: did you mean `session.idle_ttl`?
              `TENURE_LISTEN` is "nowhere", expected an IP address with a port such as "127.0.0.1:8484"
              unknown variable `TENURE_STOER`
                hint: did you mean `TENURE_STORE`?
              `--profile` is "big", expected one of "development", "single_node", "cluster", "high_volume", "long_running"
        "#]],
    );
}

#[test]
fn odd_values_are_warned_of() {
    warns(&Sources::default(), &expect![]);
    warns(
        &flags(&[("listen", "0.0.0.0:8484"), ("auth.mode", "none")]),
        &expect![[r#"
        warning: `listen` is 0.0.0.0:8484, but only loopback hosts are answered, so remote clients are refused with 403; set `http.allowed_hosts` to the names that clients use, such as ["mcp.example.com"]
    "#]],
    );
    let named =
        [("listen", "0.0.0.0:8484"), ("http.allowed_hosts", "mcp.example.com"), ("auth.mode", "none")];
    warns(&flags(&named), &expect![]);
    warns(
        &file("session.idle_ttl = \"2d\"\n"),
        &expect![[r#"
        warning: `session.idle_ttl` (2d) is longer than `session.max_lifetime` (1d, default), so sessions end by age first
    "#]],
    );
    warns(
        &file("session.idle_ttl = \"infinity\"\nsession.max_lifetime = \"1h\"\n"),
        &expect![[r#"
        warning: `session.idle_ttl` (infinity) is longer than `session.max_lifetime` (1h, tenure.toml:2), so sessions end by age first
    "#]],
    );
    warns(
        &file("streams.max_session_bytes = \"1MiB\"\n"),
        &expect![[r#"
        warning: `streams.max_event` (16MiB) is larger than `streams.max_session_bytes` (1MiB), so the largest events cannot be replayed
    "#]],
    );
}
