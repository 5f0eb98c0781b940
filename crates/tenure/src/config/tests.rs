//! The configuration that results from the layers. The texts of errors are tested in the modules below.

use std::path::PathBuf;
use std::time::Duration;

use expect_test::{Expect, expect};
use tenure_session::limits::{Gate, OnGap, UnknownEventId};
use tenure_transport::http::{AllowedHosts, AllowedOrigins};

use super::{Config, LogFormat, Profile, Sources, reference};

mod backends;
mod names;
mod values;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn file(text: &str) -> Sources {
    Sources { file: Some((PathBuf::from("tenure.toml"), text.to_owned())), ..Sources::default() }
}

fn env(variables: &[(&str, &str)]) -> Sources {
    Sources { env: pairs(variables), ..Sources::default() }
}

fn flags(flags: &[(&str, &str)]) -> Sources {
    Sources { flags: pairs(flags), ..Sources::default() }
}

fn load(sources: &Sources) -> Config {
    Config::load(sources).expect("the configuration is fine").0
}

/// The error as the binary prints it.
fn fails(sources: &Sources, expected: &Expect) {
    let error = Config::load(sources).expect_err("the configuration is wrong");
    let hint = error.hint().map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
    expected.assert_eq(&format!("error: {error}{hint}\n"));
}

fn warns(sources: &Sources, expected: &Expect) {
    let (_, warnings) = Config::load(sources).expect("the configuration is fine");
    expected.assert_eq(&warnings.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>());
}

#[test]
fn no_sources_show_the_defaults() {
    expect![[r##"
        # The configuration in force. Each value is followed by where it comes from.

        # profile is not set
        compat = "none"                          # default
        listen = "127.0.0.1:8484"                # default
        store = "disk:"                          # default
        # name is not set
        durability = "os"                        # default
        eras = "both"                            # default
        # store_key_file is not set

        [cluster]
        # listen is not set
        # advertise is not set

        [control]
        # path is not set

        [nats]
        cluster = "tenure"                       # default
        # credentials_file is not set
        # nkey is not set
        # token is not set
        # user is not set
        # password is not set
        # tls_ca is not set
        # tls_cert is not set
        # tls_key is not set
        # replicas is not set
        shards = 16                              # default
        patience = "30s"                         # default

        [log]
        format = "auto"                          # default
        level = "info"                           # default
        access = true                            # default

        [audit]
        # file is not set
        durability = "best_effort"               # default
        # key_file is not set
        # head_file is not set
        arguments = []                           # default
        redact = []                              # default
        max_size = "256MiB"                      # default

        [admin]
        # listen is not set
        hosts = []                               # default
        # keys_file is not set
        # scope is not set
        try = false                              # default

        [metrics]
        collect = true                           # default
        # listen is not set
        # report is not set

        [traces]
        # endpoint is not set
        # sample is not set

        [tls]
        # cert is not set
        # key is not set
        # client_ca is not set

        [auth]
        mode = "auto"                            # default
        # public_url is not set
        # keys_file is not set
        certificates = false                     # default
        dpop = false                             # default
        scopes = []                              # default
        includes = []                            # default
        stream_grace = "1m"                      # default

        [http]
        allowed_hosts = []                       # default
        allowed_origins = []                     # default
        trusted_proxies = []                     # default
        max_body = "4MiB"                        # default
        body_timeout = "30s"                     # default
        keep_alive = "30s"                       # default
        header_timeout = "1m"                    # default
        max_header = "32KiB"                     # default
        max_connections = 20000                  # default
        # max_connections_per_peer is not set
        stall_timeout = "1m"                     # default
        handshake_timeout = "10s"                # default

        [doors]
        sse = false                              # default
        rpc = false                              # default
        post_sse = false                         # default
        mcp_sse = false                          # default
        websocket = false                        # default
        linger = "1m"                            # default

        [child]
        command = []                             # default
        env = []                                 # default
        inherit = "all"                          # default
        # folder is not set
        share = false                            # default
        era = "auto"                             # default
        identity = false                         # default
        warm = 1                                 # default
        max = 256                                # default
        grace = "2s"                             # default
        max_line = "16MiB"                       # default
        # max_memory is not set
        # max_files is not set

        [upstream]
        # url is not set
        headers = []                             # default
        auth = "none"                            # default
        # token_url is not set
        # issuer is not set
        # client_id is not set
        # client_secret is not set
        # client_key is not set
        # client_key_id is not set
        # scope is not set
        # resource is not set
        # audience is not set
        # identity_key is not set
        connect_timeout = "5s"                   # default
        max_message = "16MiB"                    # default
        patience = "1m"                          # default
        era = "auto"                             # default

        [clients]
        memory = "512MiB"                        # default
        disk = "4GiB"                            # default
        # max_share is not set

        [limits]
        # initialize is not set
        # failed_credentials is not set
        principal = "off"                        # default
        # principal_concurrent is not set
        # calls_per_day is not set
        # calls_per_month is not set
        principals = []                          # default
        principals_concurrent = []               # default
        principals_per_day = []                  # default
        principals_per_month = []                # default
        weights = []                             # default
        session = "off"                          # default
        tools = []                               # default
        tools_concurrent = []                    # default
        tools_in_all = []                        # default
        tools_in_all_concurrent = []             # default
        backends = []                            # default
        max_wait = "1s"                          # default
        waiting_per_principal = 64               # default
        waiting = 1024                           # default
        max_lag = "100ms"                        # default
        answer = "error"                         # default

        [session]
        idle_ttl = "30m"                         # default
        handshake_ttl = "30s"                    # default
        max_lifetime = "1d"                      # default
        dormant_after = "10m"                    # default
        # max_parallel_wakes is not set
        tombstone_ttl = "1h"                     # default
        max_tombstones = 100000                  # default
        max_sessions = 200000                    # default
        max_per_principal = 200000               # default
        max_pending = 128                        # default
        max_initialize = "64KiB"                 # default
        max_metadata = "16KiB"                   # default
        max_subscriptions = 1000                 # default
        require_initialized = true               # default
        other_server = "refuse"                  # default

        [data_sessions]
        offer = "auto"                           # default
        required = "none"                        # default
        idle_ttl = "30m"                         # default
        max_lifetime = "infinity"                # default
        retention = "1d"                         # default
        tombstone_ttl = "1h"                     # default
        max_bytes = "1MiB"                       # default
        max_about = "2KiB"                       # default
        max = 2000000                            # default
        max_per_principal = 2000000              # default
        max_cookie = "4KiB"                      # default
        # carry_key_file is not set
        # version is not set
        features = ["create", "resume", "delete", "list", "recover", "fork"] # default
        always_echo = false                      # default
        strawman_code = -32002                   # default
        draft_required_code = -32044             # default

        [streams]
        max_streams = 256                        # default
        max_event = "16MiB"                      # default
        max_call = "64MiB"                       # default
        max_session_events = 10000               # default
        max_session_bytes = "64MiB"              # default
        max_total_bytes = "1GiB"                 # default
        event_ttl = "1h"                         # default
        max_unstored = "4MiB"                    # default
        max_tail = 64                            # default
        json_wait = "250ms"                      # default
        retry = "4s"                             # default
        retry_jitter = "25%"                     # default
        unknown_event_id = "fresh"               # default
        on_gap = "report"                        # default

        [exchanges]
        max_running = 10000                      # default
        max_listens = 10000                      # default
        max_parked = 1000                        # default
        stream_after = "1s"                      # default
        max_kept = 10000                         # default
        trust_public = false                     # default
        # state_key_file is not set

        [tasks]
        max = 10000                              # default
        max_per_principal = 10000                # default
        max_ttl = "1d"                           # default
        poll = "1s"                              # default
        after = "5s"                             # default

        [bridge]
        reuse = "principal"                      # default
        max_sessions = 64                        # default
        idle = "1m"                              # default
        era_ttl = "1h"                           # default

        [timeouts]
        initialize = "1m"                        # default
        request = "5m"                           # default
        max_request = "1h"                       # default
        client_answer = "10m"                    # default

        [shutdown]
        grace = "10s"                            # default
        retry = "10s"                            # default
    "##]]
    .assert_eq(&Config::show(&Sources::default()).unwrap());
}

#[test]
fn the_later_layer_wins_and_show_says_which() {
    let sources = Sources {
        file: Some((
            PathBuf::from("/etc/tenure.toml"),
            "profile = \"high_volume\"\n[session]\nidle_ttl = \"10m\"\nmax_sessions = 7\nmax_pending = 3\n"
                .to_owned(),
        )),
        env: pairs(&[
            ("TENURE_SESSION_MAX_SESSIONS", "8"),
            ("TENURE_SESSION_MAX_PENDING", "4"),
            ("HOME", "/"),
        ]),
        flags: pairs(&[("session.max_pending", "5"), ("listen", "127.0.0.1:0")]),
        ..Sources::default()
    };
    let config = load(&sources);
    assert_eq!(config.profile, Some(Profile::HighVolume));
    assert_eq!(config.limits.idle_ttl, Some(Duration::from_secs(600)));
    assert_eq!((config.limits.max_sessions, config.limits.max_pending), (8, 5));
    let shown = Config::show(&sources).unwrap();
    let chosen: String =
        shown.lines().filter(|line| !line.ends_with("default")).map(|line| line.to_owned() + "\n").collect();
    expect![[r##"
        # The configuration in force. Each value is followed by where it comes from.

        profile = "high_volume"                  # file /etc/tenure.toml:1
        listen = "127.0.0.1:0"                   # flag --listen
        store = "disk:"                          # profile high_volume
        # name is not set
        durability = "os"                        # profile high_volume
        # store_key_file is not set

        [cluster]
        # listen is not set
        # advertise is not set

        [control]
        # path is not set

        [nats]
        # credentials_file is not set
        # nkey is not set
        # token is not set
        # user is not set
        # password is not set
        # tls_ca is not set
        # tls_cert is not set
        # tls_key is not set
        # replicas is not set

        [log]

        [audit]
        # file is not set
        # key_file is not set
        # head_file is not set

        [admin]
        # listen is not set
        # keys_file is not set
        # scope is not set

        [metrics]
        # listen is not set
        # report is not set

        [traces]
        # endpoint is not set
        # sample is not set

        [tls]
        # cert is not set
        # key is not set
        # client_ca is not set

        [auth]
        # public_url is not set
        # keys_file is not set

        [http]
        # max_connections_per_peer is not set

        [doors]

        [child]
        # folder is not set
        # max_memory is not set
        # max_files is not set

        [upstream]
        # url is not set
        # token_url is not set
        # issuer is not set
        # client_id is not set
        # client_secret is not set
        # client_key is not set
        # client_key_id is not set
        # scope is not set
        # resource is not set
        # audience is not set
        # identity_key is not set

        [clients]
        # max_share is not set

        [limits]
        # initialize is not set
        # failed_credentials is not set
        # principal_concurrent is not set
        # calls_per_day is not set
        # calls_per_month is not set

        [session]
        idle_ttl = "10m"                         # file /etc/tenure.toml:3
        dormant_after = "30s"                    # profile high_volume
        # max_parallel_wakes is not set
        max_sessions = 8                         # env TENURE_SESSION_MAX_SESSIONS
        max_pending = 5                          # flag --set session.max_pending

        [data_sessions]
        # carry_key_file is not set
        # version is not set

        [streams]

        [exchanges]
        # state_key_file is not set

        [tasks]

        [bridge]

        [timeouts]

        [shutdown]
    "##]]
    .assert_eq(&chosen);
}

#[test]
fn what_is_shown_loads_to_the_same() {
    let text = "profile = \"long_running\"\n[tls]\ncert = 'C:\\a \"b\".pem'\nkey = \"k\"\n[http]\n\
        allowed_hosts = [\"a.example.com\", \"[2001:db8::1]:8484\"]\nallowed_origins = [\"*\"]\n\
        [session]\nmax_lifetime = \"infinity\"\nrequire_initialized = false\n";
    let shown = Config::show(&file(text)).unwrap();
    let again = Config::show(&file(&shown)).unwrap();
    let values = |shown: &str| -> Vec<String> {
        shown.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned()).collect()
    };
    assert_eq!(values(&shown), values(&again));
}

// A15.28: every profile sets its store and its times.
#[test]
fn every_profile_sets_its_store_and_its_times() {
    let profiles = [
        ("development", "memory:", 5),
        ("single_node", "disk:", 30),
        ("cluster", "nats://127.0.0.1:4222", 30),
        ("high_volume", "disk:", 5),
        ("long_running", "disk:", 480),
    ];
    for (name, store, minutes) in profiles {
        for sources in [
            file(&format!("profile = \"{name}\"")),
            env(&[("TENURE_PROFILE", name)]),
            flags(&[("profile", name)]),
        ] {
            let config = load(&sources);
            assert_eq!(config.profile.map(Profile::as_str), Some(name));
            assert_eq!(config.limits.idle_ttl, Some(Duration::from_secs(minutes * 60)), "{name}");
            let shown = Config::show(&sources).unwrap();
            let stored = shown.lines().find(|line| line.starts_with("store = "));
            assert_eq!(
                stored.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
                Some(format!("store = \"{store}\" # profile {name}")),
            );
        }
    }
    assert_eq!(profiles.len(), Profile::ALL.len());
}

#[test]
fn a_shared_store_and_the_address_of_the_node_belong_together() {
    let refused = |settings: &[(&str, &str)]| Config::load(&flags(settings)).unwrap_err().to_string();
    let (shared, own) = (("store", "nats://10.0.0.9:4222"), ("store", "disk:/srv/tenure"));
    let told = [
        refused(&[shared, ("cluster.listen", "0.0.0.0:8485")]),
        refused(&[shared, ("cluster.listen", "10.0.0.1:8486"), ("cluster.advertise", "tenure-1")]),
        refused(&[shared, ("cluster.listen", "10.0.0.1:8486"), ("cluster.advertise", "me@tenure-1:1")]),
    ];
    expect_test::expect![[r#"
        `cluster.listen` is 0.0.0.0:8485, which no other node can connect to, and `cluster.advertise` is not set
        `--set cluster.advertise` is "tenure-1", expected a name or an IP address with a port such as "tenure-1.internal:8486"
        `--set cluster.advertise` is "me@tenure-1:1", expected a name or an IP address with a port such as "tenure-1.internal:8486""#]].assert_eq(&told.join("\n"));
    for good in [
        &[shared, ("cluster.listen", "10.0.0.1:8486")][..],
        &[shared, ("cluster.listen", "0.0.0.0:8485"), ("cluster.advertise", "[2001:db8::1]:8485")],
    ] {
        assert!(load(&flags(good)).cluster.listen.is_some());
    }
    let warned = |settings: &[(&str, &str)]| {
        let (_, warnings) = Config::load(&flags(settings)).unwrap();
        warnings.iter().map(ToString::to_string).collect::<String>()
    };
    assert!(warned(&[shared, ("cluster.listen", "127.0.0.1:8485")]).contains("only nodes on this machine"));
    assert!(warned(&[own, ("cluster.listen", "10.0.0.1:8486")]).contains("has no effect"));
}

#[test]
fn compat_opens_its_doors_unless_they_are_closed() {
    use tenure_transport::http::Leniencies;
    let config = load(&flags(&[("compat", "sources")]));
    assert_eq!(config.rules.leniencies, Leniencies::SOURCES);
    assert!(config.doors.rpc && config.doors.post_sse && config.doors.mcp_sse);
    let config = load(&flags(&[("compat", "sources"), ("doors.rpc", "false")]));
    assert!(!config.doors.rpc && config.doors.post_sse);
    let config = load(&flags(&[]));
    assert_eq!(config.rules.leniencies, Leniencies::NONE);
    assert!(!config.doors.rpc);
}

#[test]
fn a_profile_in_a_flag_lies_below_the_file() {
    let sources =
        Sources { flags: pairs(&[("profile", "long_running")]), ..file("session.idle_ttl = \"1m\"") };
    assert_eq!(load(&sources).limits.idle_ttl, Some(Duration::from_secs(60)));
}

#[test]
fn every_kind_of_value_is_read_from_a_file() {
    let config = load(&file(
        "listen = \"[::1]:9000\"\nlog.format = \"json\"\nlog.level = \"warn,tenure_session=debug\"\n\
         http.allowed_hosts = [\"mcp.example.com\"]\nhttp.max_body = 65536\nhttp.max_header = \"16KiB\"\n\
         session.idle_ttl = \"infinity\"\nsession.max_lifetime = \"infinity\"\nsession.require_initialized = false\n\
         streams.on_gap = \"error\"\nstreams.unknown_event_id = \"replay_all\"\nshutdown.grace = \"0s\"\n\
         tls.cert = \"c.pem\"\ntls.key = \"k.pem\"\n",
    ));
    assert_eq!(config.listen.to_string(), "[::1]:9000");
    assert_eq!(
        (config.log.format, config.log.level.as_str()),
        (LogFormat::Json, "warn,tenure_session=debug")
    );
    assert!(matches!(config.rules.hosts, AllowedHosts::List(hosts) if hosts == ["mcp.example.com"]));
    assert_eq!((config.rules.max_body_bytes, config.bounds.max_header_bytes), (65_536, 16 << 10));
    assert_eq!((config.limits.idle_ttl, config.limits.max_lifetime), (None, None));
    assert_eq!(config.limits.gate, Gate::Lenient);
    assert_eq!(
        (config.limits.on_gap, config.limits.unknown_event_id),
        (OnGap::Error, UnknownEventId::ReplayAll)
    );
    assert_eq!(config.shutdown_grace, Duration::ZERO);
    assert_eq!(config.tls.map(|tls| (tls.cert, tls.key)), Some(("c.pem".into(), "k.pem".into())));
}

#[test]
fn every_kind_of_value_is_read_from_the_environment() {
    let config = load(&env(&[
        ("TENURE_LISTEN", "127.0.0.1:0"),
        ("TENURE_HTTP_ALLOWED_HOSTS", "a.example.com, [2001:db8::1]:8484,"),
        ("TENURE_HTTP_ALLOWED_ORIGINS", "*"),
        ("TENURE_HTTP_MAX_BODY", "1024"),
        ("TENURE_HTTP_MAX_CONNECTIONS", "10"),
        ("TENURE_STREAMS_JSON_WAIT", " 1s "),
        ("TENURE_SESSION_REQUIRE_INITIALIZED", "false"),
        ("TENURE_LOG_FORMAT", "pretty"),
        ("TENURE_STORE", ""),
    ]));
    assert!(
        matches!(config.rules.hosts, AllowedHosts::List(hosts) if hosts == ["a.example.com", "[2001:db8::1]:8484"])
    );
    assert!(matches!(config.rules.origins, AllowedOrigins::Any));
    assert_eq!((config.rules.max_body_bytes, config.bounds.max_connections), (1024, 10));
    assert_eq!(config.limits.json_wait, Duration::from_secs(1));
    assert_eq!(config.limits.gate, Gate::Lenient);
    assert_eq!((config.log.format, config.store.as_str()), (LogFormat::Pretty, "disk:"));
}

#[test]
fn variables_that_are_not_ours_are_left_alone() {
    load(&env(&[
        ("TENURE_CONFIG", "tenure.toml"),
        ("TENURE_JAR", "jar.json"),
        ("TENURE_SERVICE_HOST", "10.0.0.1"),
        ("TENURE_SERVICE_PORT", "8484"),
        ("TENURE_SERVICE_PORT_HTTP", "8484"),
        ("TENURE_PORT", "tcp://10.0.0.1:8484"),
        ("TENURE_PORT_8484_TCP", "tcp://10.0.0.1:8484"),
        ("TENURE_PORT_8484_TCP_ADDR", "10.0.0.1"),
        ("TENURE_ADMIN_PORT", "tcp://10.0.0.1:8484"),
        ("TENURED", "professor"),
    ]));
    fails(
        &env(&[("TENURE_PORT", "9000")]),
        &expect![[r#"
        error: `TENURE_PORT` is called `TENURE_LISTEN` here

        hint: `TENURE_LISTEN` takes an IP address with a port such as "127.0.0.1:8484"
    "#]],
    );
}

#[test]
fn the_example_loads_as_it_is_and_with_everything_set() {
    // The same text as `tenure.example.toml`, which `reference` holds to it.
    let example = reference::example();
    let defaults = Config::show(&Sources::default()).unwrap();
    let values = |shown: &str| -> Vec<String> {
        let set = shown.lines().filter(|line| line.contains(" = "));
        set.map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned()).collect()
    };
    assert_eq!(values(&Config::show(&file(&example)).unwrap()), values(&defaults));

    let set: String = example
        .lines()
        .map(|line| {
            line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or(line).to_owned()
                + "\n"
        })
        .collect();
    let shown = Config::show(&file(&set)).unwrap();
    assert!(!shown.contains("# default") && !shown.contains("is not set"), "{shown}");
    let mut without_examples = values(&shown);
    let examples = [
        "profile",
        "path",
        "max_parallel_wakes",
        "advertise",
        "credentials_file",
        "nkey",
        "token",
        "user",
        "password",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "replicas",
        "file",
        "key_file",
        "head_file",
        "cert",
        "key",
        "client_ca",
        "public_url",
        "keys_file",
        "max_connections_per_peer",
        "max_share",
        "failed_credentials",
        "principal_concurrent",
        "calls_per_day",
        "calls_per_month",
        "store_key_file",
        "folder",
        "max_memory",
        "max_files",
        "carry_key_file",
        "version",
        "state_key_file",
        "url",
        "name",
        "token_url",
        "issuer",
        "client_id",
        "client_secret",
        "client_key",
        "client_key_id",
        "scope",
        "resource",
        "audience",
        "identity_key",
        "report",
        "endpoint",
        "sample",
    ];
    without_examples.retain(|line| !examples.iter().any(|key| line.starts_with(&format!("{key} = "))));
    // `listen` at the top has a default.
    let listening =
        ["10.0.0.1:8486", "127.0.0.1:8485", "127.0.0.1:9464"].map(|at| format!("listen = \"{at}\""));
    without_examples.retain(|line| !listening.contains(line));
    // `timeouts` has a key of the same name.
    without_examples.retain(|line| line != "initialize = \"30/min\"");
    assert_eq!(without_examples, values(&defaults));
}
