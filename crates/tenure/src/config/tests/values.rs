//! What people read when a value cannot be read.

use expect_test::expect;

use super::{env, fails, file, flags, load};
use crate::config::{Config, Inherited, Sources};

#[test]
fn durations_that_cannot_be_read() {
    fails(
        &file("session.idle_ttl = 1800\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.idle_ttl` is 1800, expected a duration such as "30m", or "infinity"

        hint: say in which unit: "1800ms" or "1800s"
    "#]],
    );
    fails(
        &file("session.idle_ttl = \"5 minutes\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.idle_ttl` is "5 minutes", expected a duration such as "30m", or "infinity"

        hint: the units are ms, s, m, h and d, the largest first
    "#]],
    );
    fails(
        &file("session.idle_ttl = \"0s\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.idle_ttl` is "0s", expected a duration such as "30m", or "infinity"

        hint: for no limit write "infinity"
    "#]],
    );
    fails(
        &file("session.idle_ttl = true\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.idle_ttl` is true, expected a duration such as "30m", or "infinity"
    "#]],
    );
    fails(
        &file("http.keep_alive = \"infinity\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.keep_alive` is "infinity", expected a duration such as "30s" or "1h30m"

        hint: the longest is "3650d"
    "#]],
    );
    fails(
        &file("http.keep_alive = \"0ms\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.keep_alive` is "0ms", expected a duration such as "30s" or "1h30m"

        hint: it has to be longer than zero
    "#]],
    );
    fails(
        &file("http.keep_alive = \"4000d\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.keep_alive` is "4000d", expected a duration such as "30s" or "1h30m"

        hint: the longest is "3650d"
    "#]],
    );
    fails(
        &env(&[("TENURE_TIMEOUTS_REQUEST", "30")]),
        &expect![[r#"
        error: `TENURE_TIMEOUTS_REQUEST` is "30", expected a duration such as "30s" or "1h30m"

        hint: say in which unit: "30ms" or "30s"
    "#]],
    );
}

#[test]
fn sizes_and_counts_that_cannot_be_read() {
    fails(
        &file("http.max_body = \"4MB\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_body` is "4MB", expected a size such as "4MiB" or 65536

        hint: the units are B, KiB, MiB and GiB: write "4MiB"
    "#]],
    );
    fails(
        &file("http.max_body = \"big\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_body` is "big", expected a size such as "4MiB" or 65536

        hint: the units are B, KiB, MiB and GiB
    "#]],
    );
    fails(
        &file("http.max_body = -1\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_body` is -1, expected a size such as "4MiB" or 65536
    "#]],
    );
    fails(
        &file("http.max_body = 1.5\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_body` is 1.5, expected a size such as "4MiB" or 65536
    "#]],
    );
    fails(
        &file("http.max_body = \"2048GiB\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_body` is "2048GiB", expected a size such as "4MiB" or 65536

        hint: the most is "1024GiB"
    "#]],
    );
    fails(
        &file("http.max_header = 100\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.max_header` is 100, expected a size such as "4MiB" or 65536

        hint: the least is "8KiB"
    "#]],
    );
    fails(
        &file("session.max_sessions = 0\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.max_sessions` is 0, expected a whole number from 1 to 100000000
    "#]],
    );
    fails(
        &file("session.max_sessions = \"many\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `session.max_sessions` is "many", expected a whole number from 1 to 100000000
    "#]],
    );
    fails(
        &flags(&[("session.max_sessions", "1e9")]),
        &expect![[r#"
        error: `--set session.max_sessions` is "1e9", expected a whole number from 1 to 100000000
    "#]],
    );
}

#[test]
fn names_and_places_that_cannot_be_read() {
    fails(
        &file("profile = \"developement\"\n"),
        &expect![[r#"
            error: tenure.toml:1: `profile` is "developement", expected one of "development", "single_node", "cluster", "high_volume", "long_running"

            hint: did you mean "development"?
        "#]],
    );
    fails(
        &file("streams.on_gap = \"ignore\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `streams.on_gap` is "ignore", expected one of "report", "warn", "error"
    "#]],
    );
    fails(
        &file("listen = 8484\n"),
        &expect![[r#"
        error: tenure.toml:1: `listen` is 8484, expected an IP address with a port such as "127.0.0.1:8484"

        hint: for this port on loopback write "127.0.0.1:8484"
    "#]],
    );
    fails(
        &flags(&[("listen", "localhost:8484")]),
        &expect![[r#"
        error: `--listen` is "localhost:8484", expected an IP address with a port such as "127.0.0.1:8484"

        hint: for loopback write "127.0.0.1:8484"
    "#]],
    );
    fails(
        &flags(&[("listen", ":8484")]),
        &expect![[r#"
        error: `--listen` is ":8484", expected an IP address with a port such as "127.0.0.1:8484"

        hint: for every interface write "0.0.0.0:8484"
    "#]],
    );
    fails(
        &file("[listen]\nport = 1\n"),
        &expect![[r#"
        error: tenure.toml:1: `listen` is a table, expected an IP address with a port such as "127.0.0.1:8484"
    "#]],
    );
    fails(
        &file("session = 5\n"),
        &expect![[r#"
        error: tenure.toml:1: `session` is a section, not a key

        hint: write `[session]` and its keys below
    "#]],
    );
    fails(
        &file("store = \"ets\"\n"),
        &expect![[r#"
            error: tenure.toml:1: `store` is "ets", expected the URL of a store such as "disk:/var/lib/tenure", "memory:" or "nats://127.0.0.1:4222"

            hint: a store is named by its engine and a colon
        "#]],
    );
    fails(
        &file("tls.cert = \"\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `tls.cert` is "", expected the path of a file such as "/etc/tenure/cert.pem"
    "#]],
    );
    fails(
        &env(&[("TENURE_SESSION_REQUIRE_INITIALIZED", "yes")]),
        &expect![[r#"
        error: `TENURE_SESSION_REQUIRE_INITIALIZED` is "yes", expected true or false
    "#]],
    );
    fails(
        &flags(&[("log.level", "verbose")]),
        &expect![[r#"
        error: `--log-level` is "verbose", expected a log level such as "info", or a filter such as "info,tenure_session=debug"

        hint: the levels are off, error, warn, info, debug and trace; for a target write `verbose=info`
    "#]],
    );
    fails(
        &flags(&[("log.level", "info,tenure=loud")]),
        &expect![[r#"
        error: `--log-level` is "info,tenure=loud", expected a log level such as "info", or a filter such as "info,tenure_session=debug"

        hint: the levels are off, error, warn, info, debug and trace
    "#]],
    );
}

#[test]
fn a_command_in_one_piece_is_taken_apart_in_the_hint() {
    fails(
        &file("[child]\ncommand = \"npx -y foo\"\n"),
        &expect![[r#"
        error: tenure.toml:2: `child.command` is "npx -y foo", expected a list of words such as ["npx", "-y", "some-mcp-server"]

        hint: write each word by itself, in brackets: ["npx", "-y", "foo"]
    "#]],
    );
}

#[test]
fn lists_that_cannot_be_read() {
    fails(
        &file("http.allowed_hosts = \"mcp.example.com\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_hosts` is "mcp.example.com", expected a list of hosts such as ["mcp.example.com"], or ["*"] for any

        hint: write it in brackets: ["mcp.example.com"]
    "#]],
    );
    fails(
        &file("http.allowed_hosts = [\"https://mcp.example.com\"]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_hosts` is ["https://mcp.example.com"], expected a list of hosts such as ["mcp.example.com"], or ["*"] for any

        hint: "https://mcp.example.com" is a URL; write its host only
    "#]],
    );
    fails(
        &file("http.allowed_hosts = [\"*.example.com\"]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_hosts` is ["*.example.com"], expected a list of hosts such as ["mcp.example.com"], or ["*"] for any

        hint: "*.example.com" is a pattern; write every host in full
    "#]],
    );
    fails(
        &file("http.allowed_hosts = [\n  \"*\",\n  \"mcp.example.com\",\n]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_hosts` is [ "*", "mcp.example.com", ], expected a list of hosts such as ["mcp.example.com"], or ["*"] for any

        hint: `*` stands for all, so it stands alone
    "#]],
    );
    fails(
        &file("http.allowed_hosts = [1]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_hosts` is [1], expected a list of hosts such as ["mcp.example.com"], or ["*"] for any
    "#]],
    );
    fails(
        &env(&[("TENURE_HTTP_ALLOWED_HOSTS", "[\"mcp.example.com\"]")]),
        &expect![[r#"
        error: `TENURE_HTTP_ALLOWED_HOSTS` is "[\"mcp.example.com\"]", expected a list of hosts such as ["mcp.example.com"], or ["*"] for any

        hint: outside a file, write the names with commas between them, without quotes
    "#]],
    );
    fails(
        &file("http.allowed_origins = [\"app.example.com\"]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_origins` is ["app.example.com"], expected a list of origins such as ["https://app.example.com"], or ["*"] for any

        hint: "app.example.com" has no scheme; write it as a browser does, such as "https://app.example.com"
    "#]],
    );
    fails(
        &file("http.allowed_origins = [\"https://app.example.com/\"]\n"),
        &expect![[r#"
        error: tenure.toml:1: `http.allowed_origins` is ["https://app.example.com/"], expected a list of origins such as ["https://app.example.com"], or ["*"] for any

        hint: "https://app.example.com/" has a path; an origin ends after host and port
    "#]],
    );
}

#[test]
fn the_secrets_of_an_endpoint_are_not_shown() {
    for url in ["https://user:geheim@host:1/mcp?key=geheim", "https://host/a@b#geheim", "http://geheim@host"]
    {
        let shown = super::Config::show(&super::flags(&[("upstream.url", url)])).unwrap();
        assert!(shown.contains("host") && !shown.contains("geheim"), "{shown}");
    }
}

#[test]
fn variables_that_a_child_inherits() {
    let inherit = |sources: &Sources| load(sources).child.inherit;
    let only = |names: &[&str]| Inherited::Only(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(inherit(&file("child.inherit = \"all\"\n")), Inherited::All);
    assert_eq!(inherit(&file("child.inherit = \"none\"\n")), only(&[]));
    assert_eq!(inherit(&file("child.inherit = [\"A\", \"B\"]\n")), only(&["A", "B"]));
    assert_eq!(inherit(&env(&[("TENURE_CHILD_INHERIT", "A, B")])), only(&["A", "B"]));
    fails(
        &file("child.inherit = \"NODE_ENV\"\n"),
        &expect![[r#"
        error: tenure.toml:1: `child.inherit` is "NODE_ENV", expected "all", "none", or a list of variables such as ["NODE_ENV"]

        hint: write it in brackets: ["NODE_ENV"]
    "#]],
    );
    fails(
        &file("child.inherit = [\"A=1\"]\n"),
        &expect![[r#"
        error: tenure.toml:1: `child.inherit` is ["A=1"], expected "all", "none", or a list of variables such as ["NODE_ENV"]

        hint: "A=1" is not the name of a variable
    "#]],
    );
}

#[test]
fn variables_that_some_server_needs_are_secrets() {
    let config = load(&file(
        r#"
        child.env = ["A=env:FIRST", "B=plain"]
        upstream.headers = ["X-Key: file:/key"]
        [[backend]]
        name = "one"
        url = "http://127.0.0.1/mcp"
        headers = ["Authorization: env:SECOND"]
        [[backend]]
        name = "two"
        command = ["true"]
        env = ["C=env:THIRD"]
        "#,
    ));
    let mut secrets = config.secret_variables();
    secrets.sort_unstable();
    secrets.dedup();
    assert_eq!(secrets, ["FIRST", "SECOND", "THIRD"]);
}

#[test]
fn a_server_that_others_can_reach_needs_credentials_or_a_word_that_it_needs_none() {
    fails(
        &flags(&[("listen", "0.0.0.0:8484")]),
        &expect![[r#"
        error: `listen` is 0.0.0.0:8484, so that other machines can connect, and callers need no credentials

        hint: make a key with `tenure keys new NAME --file KEYS` and set `auth.keys_file`, or add an `[[issuer]]`; write `auth = "none"` if a proxy in front of this server checks who is calling
    "#]],
    );
    let keys = [("listen", "0.0.0.0:8484"), ("auth.keys_file", "/etc/tenure/keys.toml")];
    assert!(load(&flags(&keys)).auth.is_on());
    assert!(!load(&file("auth = \"none\"\nlisten = \"0.0.0.0:8484\"\n")).auth.is_on());
    assert!(!load(&Sources::default()).auth.is_on(), "on loopback callers need none");
}

#[test]
fn credentials_that_cannot_work_are_refused() {
    fails(
        &file("[auth]\nmode = \"none\"\nkeys_file = \"keys.toml\"\n"),
        &expect![[r#"
        error: `auth` is "none", and credentials are configured

        hint: remove one of them: with "none" nothing is checked
    "#]],
    );
    fails(
        &file("[auth]\ncertificates = true\n"),
        &expect![[r#"
        error: `auth.certificates` is true, and `tls.client_ca` is not set

        hint: set it to the file with the authorities of your clients' certificates
    "#]],
    );
    fails(
        &file("[tls]\nclient_ca = \"ca.pem\"\n"),
        &expect![[r#"
        error: `tls.client_ca` is set and `tls.cert` is not

        hint: clients present certificates over TLS only: set `tls.cert` and `tls.key` too
    "#]],
    );
    fails(
        &file("listen = \"127.0.0.1:0\"\n[[issuer]]\nname = \"corp\"\nurl = \"https://id\"\n"),
        &expect![[r#"
        error: there is an `[[issuer]]`, and `auth.public_url` is not set

        hint: tokens are issued for a URL: set it to the one that clients use, such as "https://mcp.example.com"
    "#]],
    );
    fails(
        &file("[auth]\nscopes = [\"files\"]\npublic_url = \"mcp.example.com\"\n"),
        &expect![[r#"
        error: the configuration has 2 problems
          tenure.toml:2: `auth.scopes` is ["files"], expected a list such as ["files/read_* = files:read", "* = mcp:use"]
            hint: each is a name, an equals sign, and words with spaces between them
          tenure.toml:3: `auth.public_url` is "mcp.example.com", expected the URL of this server such as "https://mcp.example.com"
            hint: it begins with http:// or https://, and has no query
    "#]],
    );
    fails(
        &file(
            "[[issuer]]\nurl = 1\nclient_id = \"me\"\nalgorithm = []\n[[issuer]]\nname = \"corp\"\nclient_secret = 7\n",
        ),
        &expect![[r#"
            error: the configuration has 7 problems
              tenure.toml:2: `url` is 1, expected a text
              tenure.toml:4: unknown key `algorithm` in an `[[issuer]]`
                hint: did you mean `algorithms`?
              tenure.toml:1: the `[[issuer]]` has no `name`
                hint: give it one: its users are called NAME:SUBJECT
              tenure.toml:1: `client_id` and `client_secret` are set together or not at all
                hint: we need both to ask the issuer about opaque tokens
              tenure.toml:7: `client_secret` is something else, expected a text
              tenure.toml:5: the `[[issuer]]` has no `url`
                hint: set it to what its tokens have as `iss`, such as "https://id.example.com"
              tenure.toml:5: `client_id` and `client_secret` are set together or not at all
                hint: we need both to ask the issuer about opaque tokens
        "#]],
    );
}

#[test]
fn scopes_without_credentials_would_check_nothing() {
    fails(
        &file("[auth]\nscopes = [\"* = mcp:use\"]\n"),
        &expect![[r#"
            error: `auth.scopes` or `auth.includes` is set, and no credentials are configured

            hint: callers without credentials have no scopes, so nothing would be checked: set `auth.keys_file`, or add an `[[issuer]]`
        "#]],
    );
}

#[test]
fn what_is_shown_of_issuers_loads_as_it_was() {
    let text = "[auth]\npublic_url = \"https://mcp.example.com/\"\nscopes = [\"files/read_* = files:read\", \"* = mcp:use\"]\n\
        [[issuer]]\nname = \"corp\"\nurl = \"https://id.example.com\"\naudiences = [\"api\"]\nalgorithms = [\"ES256\"]\n\
        require_at_jwt = true\nkeys = \"file:/etc/keys.json\"\nclient_id = \"me\"\nclient_secret = \"env:SECRET\"\n";
    let config = load(&file(text));
    assert_eq!(config.auth.public_url.as_deref(), Some("https://mcp.example.com"), "without the slash");
    let shown = Config::show(&file(text)).unwrap();
    assert_eq!(load(&file(&shown)).auth, config.auth);
}

#[test]
fn a_secret_that_stands_in_the_configuration_itself_is_not_shown() {
    let text = "[[issuer]]\nname = \"corp\"\nurl = \"https://id.example.com\"\nclient_id = \"me\"\nclient_secret = \"geheim-1\"\n\
        [auth]\npublic_url = \"https://mcp.example.com\"\n\
        [nats]\npassword = \"geheim-2\"\n[child]\nenv = [\"TOKEN=geheim-7\", \"OTHER=env:OF_THE_PROCESS\"]\n\
        [upstream]\nurl = \"https://me:geheim-4@mcp.example.com/\"\nauth = \"client_credentials\"\nclient_id = \"me\"\n\
        client_secret = \"geheim-5\"\nheaders = [\"X-Token: geheim-6\"]\n";
    let config = load(&file(text));
    let shown = Config::show(&file(text)).unwrap();
    assert!(shown.contains("client_secret = \"(hidden)\""), "{shown}");
    let printed = format!("{config:?} {config:#?}");
    assert!(shown.contains("env = [\"TOKEN=(hidden)\", \"OTHER=env:OF_THE_PROCESS\"]"), "{shown}");
    let operators = serde_json::to_string(&config.shown).unwrap();
    assert!(operators.contains("TOKEN=(hidden)"), "{operators}");
    for text in [shown, printed, operators] {
        let at = text.find("geheim").map(|at| &text[at.saturating_sub(60)..(at + 8).min(text.len())]);
        assert_eq!(at, None);
    }
}

#[test]
fn a_url_is_shown_with_marks_for_the_secrets_that_are_left_out() {
    let text = "store = \"nats://me:geheim@one:4222,two:4222?token=geheim\"\n\
        [http]\nallowed_origins = [\"https://me:geheim@app.example.com\", \"https://b.example.com\"]\n\
        [traces]\nendpoint = \"http://me:geheim@collector:4318/?key=gehe\\\"geheim\"\n\
        [upstream]\nurl = \"https://me:geheim@host/mcp?key=geheim\"\nauth = \"client_credentials\"\nclient_id = \"me\"\n\
        client_secret = \"env:S\"\ntoken_url = \"https://id.example.com/token#geheim\"\nresource = \"https://host/?geheim\"\n\
        [cluster]\nlisten = \"127.0.0.1:0\"\n\
        [auth]\npublic_url = \"https://mcp.example.com\"\n\
        [[issuer]]\nname = \"corp\"\nurl = \"https://me:geheim@id.example.com\"\nkeys = \"https://id.example.com/keys?geheim\"\n\
        introspection_url = \"https://me:geheim@id.example.com/introspect\"\nclient_id = \"me\"\nclient_secret = \"env:S\"\n";
    let config = load(&file(text));
    let shown = Config::show(&file(text)).unwrap();
    let of =
        |key: &str| config.shown.iter().find(|row| row.key == key).and_then(|row| row.value.clone()).unwrap();
    assert_eq!(of("store"), "\"nats://…@one:4222,two:4222?…\"");
    assert_eq!(of("upstream.url"), "\"https://…@host/mcp?…\"");
    assert_eq!(of("upstream.token_url"), "\"https://id.example.com/token#…\"");
    assert_eq!(of("upstream.resource"), "\"https://host/?…\"");
    assert_eq!(of("traces.endpoint"), "\"http://…@collector:4318/?…\"");
    assert_eq!(of("http.allowed_origins"), "[\"https://…@app.example.com\", \"https://b.example.com\"]");
    assert_eq!(of("issuer.corp"), "https://…@id.example.com");
    for url in
        ["https://…@id.example.com", "https://id.example.com/keys?…", "https://…@id.example.com/introspect"]
    {
        assert!(shown.contains(&format!("= \"{url}\"")), "{url}: {shown}");
    }
    for text in [shown, serde_json::to_string(&config.shown).unwrap()] {
        assert!(!text.contains("gehe"), "{text}");
    }
}
