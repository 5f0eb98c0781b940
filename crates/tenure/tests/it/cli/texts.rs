//! Every text a person reads, as a snapshot.

use expect_test::expect_file;

use super::process::{Said, finish, run, tenure};

/// A command that succeeds and says something on standard output alone.
async fn told(arguments: &[&str]) -> String {
    let Said { code, out, err } = run(arguments).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}");
    out
}

/// A command that fails and says why on standard error alone.
async fn refused(arguments: &[&str], code: i32) -> String {
    let said = run(arguments).await;
    assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{arguments:?}: {}", said.err);
    said.err
}

#[tokio::test]
async fn every_command_explains_itself() {
    expect_file!["snapshots/help.txt"].assert_eq(&told(&["--help"]).await);
    expect_file!["snapshots/help_serve.txt"].assert_eq(&told(&["serve", "--help"]).await);
    expect_file!["snapshots/help_stdio.txt"].assert_eq(&told(&["stdio", "--help"]).await);
    expect_file!["snapshots/help_config.txt"].assert_eq(&told(&["config", "--help"]).await);
    expect_file!["snapshots/help_completions.txt"].assert_eq(&told(&["completions", "--help"]).await);
    expect_file!["snapshots/help_sessions.txt"].assert_eq(&told(&["sessions", "--help"]).await);
    expect_file!["snapshots/help_sessions_data.txt"].assert_eq(&told(&["sessions", "data", "--help"]).await);
    expect_file!["snapshots/help_calls.txt"].assert_eq(&told(&["calls", "--help"]).await);
    expect_file!["snapshots/help_usage.txt"].assert_eq(&told(&["usage", "--help"]).await);
    expect_file!["snapshots/help_store.txt"].assert_eq(&told(&["store", "--help"]).await);
}

#[tokio::test]
async fn every_operator_command_explains_itself_with_examples() {
    for (group, commands) in [
        ("sessions", &["list", "show", "revoke", "set", "export", "import"][..]),
        ("sessions data", &["list", "show", "create", "resume", "select", "clear", "revoke"]),
        ("limits", &["show"]),
        ("store", &["check", "backup", "copy", "list", "new-key"]),
        ("principals", &["list", "show", "revoke", "reinstate"]),
        ("admin", &["open"]),
    ] {
        for command in commands {
            let arguments: Vec<_> = group.split(' ').chain([*command, "--help"]).collect();
            let help = told(&arguments).await;
            assert!(help.contains("\nExample"), "{group} {command}: {help}");
            let name = format!("help_{}_{command}.txt", group.replace(' ', "_"));
            let file = format!("{}/tests/it/cli/snapshots/{name}", env!("CARGO_MANIFEST_DIR"));
            expect_file![file].assert_eq(&help);
        }
    }
}

#[tokio::test]
async fn without_a_command_there_is_help() {
    let said = refused(&[], 2).await;
    assert!(said.contains("Usage: tenure <COMMAND>"), "{said}");
}

#[tokio::test]
async fn the_version_is_one_line() {
    assert_eq!(told(&["--version"]).await, format!("tenure {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn config_show_says_where_each_value_comes_from() {
    expect_file!["snapshots/config_show.txt"].assert_eq(&told(&["config", "show"]).await);
    let arguments =
        ["config", "show", "--profile", "development", "--set", "session.max_sessions=7", "--log", "json"];
    let shown = told(&arguments).await;
    for line in [
        "format = \"json\"                          # flag --log",
        "idle_ttl = \"5m\"                          # profile development",
        "max_sessions = 7                         # flag --set session.max_sessions",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}

#[tokio::test]
async fn every_bound_in_the_config_is_in_the_table_of_bounds() {
    let (shown, mut section) = (told(&["config", "show"]).await, String::new());
    let mut bounds = Vec::new();
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        }
        let mut words = line.trim_start_matches("# ").split(' ');
        let (Some(name), Some("=" | "is")) = (words.next(), words.next()) else { continue };
        if name.starts_with("max") || matches!(name, "memory" | "disk") {
            bounds.push(format!("`{section}.{name}`"));
        }
    }
    assert!(bounds.len() > 40, "{bounds:?}");
    let table = include_str!("../../../../../docs/security.md");
    bounds.retain(|key| !table.lines().any(|line| line.starts_with('|') && line.contains(key.as_str())));
    assert!(bounds.is_empty(), "say in docs/security.md what happens beyond {bounds:?}");
}

#[tokio::test]
async fn what_config_show_prints_can_be_used_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shown.toml");
    std::fs::write(&file, told(&["config", "show", "--set", "streams.retry=7s"]).await).unwrap();
    let shown = told(&["config", "show", "--config", file.to_str().unwrap()]).await;
    assert!(shown.contains("retry = \"7s\""), "{shown}");
}

#[tokio::test]
async fn config_check_says_whether_it_can_be_used() {
    expect_file!["snapshots/config_check.txt"].assert_eq(&told(&["config", "check"]).await);
    let said = run(&["config", "check", "--listen", "0.0.0.0:8484", "--set", "auth.mode=none"]).await;
    assert_eq!(said.code, Some(0));
    expect_file!["snapshots/config_check_warning.txt"].assert_eq(&format!("{}{}", said.err, said.out));
}

#[tokio::test]
async fn au11_a_server_that_others_can_reach_does_not_start_without_credentials() {
    let listen = ["--listen", "0.0.0.0:8484"];
    let served = refused(&[&["serve"][..], &listen].concat(), 1).await;
    expect_file!["snapshots/serve_without_credentials.txt"].assert_eq(&served);
    assert_eq!(refused(&[&["config", "check"][..], &listen].concat(), 1).await, served);
}

#[tokio::test]
async fn config_check_finds_a_store_that_serve_would_trip_over() {
    let store = ["--listen", "127.0.0.1:0", "--store", "redis://localhost"];
    let served = refused(&[&["serve"][..], &store].concat(), 1).await;
    assert_eq!(refused(&[&["config", "check"][..], &store].concat(), 1).await, served);
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_explained() {
    let cases: [(&str, &[&str]); 8] = [
        ("unknown key", &["--set", "session.idle_tll=1h"]),
        ("renamed key", &["--set", "session_timeout_ms=60000"]),
        ("no unit", &["--set", "session.idle_ttl=30"]),
        ("no value", &["--set", "session.idle_ttl"]),
        ("not an address", &["--listen", "localhost"]),
        ("half of TLS", &["--tls-cert", "cert.pem"]),
        ("two problems", &["--set", "http.max_body=4MB", "--profile", "production"]),
        ("no such file", &["--config", "no/such/file.toml"]),
    ];
    let mut all = String::new();
    for (name, arguments) in cases {
        // The same words whether one checks, shows or serves.
        let texts = [
            refused(&[&["config", "check"], arguments].concat(), 1).await,
            refused(&[&["config", "show"], arguments].concat(), 1).await,
            refused(&[&["serve"], arguments].concat(), 1).await,
        ];
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        all.push_str(&format!("## {name}: {}\n{}\n", arguments.join(" "), texts[0]));
    }
    expect_file!["snapshots/refused_settings.txt"].assert_eq(&all);
}

#[tokio::test]
async fn an_unknown_key_in_a_file_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n\n[session]\nidle_tll = \"1h\"\n").unwrap();
    let text = refused(&["serve", "--config", file.to_str().unwrap()], 1).await;
    let text = text.replace(&dir.path().display().to_string(), "DIR");
    expect_file!["snapshots/unknown_key.txt"].assert_eq(&text);
}

#[tokio::test]
async fn an_unknown_variable_is_an_error() {
    let mut command = tenure(&["config", "check"]);
    command.env("TENURE_SESSION_IDLE_TLL", "1h");
    let said = finish(command).await;
    assert_eq!(said.code, Some(1));
    expect_file!["snapshots/unknown_variable.txt"].assert_eq(&said.err);
}

#[tokio::test]
async fn a_store_that_does_not_exist_is_explained() {
    expect_file!["snapshots/unknown_store.txt"]
        .assert_eq(&refused(&["serve", "--listen", "127.0.0.1:0", "--store", "redis://localhost"], 1).await);
}

#[tokio::test]
async fn what_is_served_is_looked_for_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.txt");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let cases: [(&str, &[&str]); 8] = [
        ("no such program", &["config", "check", "--", "no-such-program", "-y"]),
        ("no program", &["config", "check", "--", file]),
        (
            "no such variable",
            &["config", "check", "--set", "child.env=KEY=env:NO_SUCH_VARIABLE", "--", "true"],
        ),
        ("no such secret", &["config", "check", "--set", "child.env=KEY=file:/no/such/file", "--", "true"]),
        (
            "no such header",
            &[
                "config",
                "check",
                "--upstream",
                "http://localhost/mcp",
                "--set",
                "upstream.headers=X-Key: env:NO_SUCH_VARIABLE",
            ],
        ),
        (
            "no such certificate",
            &["config", "check", "--tls-cert", "/no/cert.pem", "--tls-key", "/no/key.pem"],
        ),
        ("two servers", &["serve", "--upstream", "http://me:geheim@localhost/mcp", "--", "npx", "-y", "foo"]),
        ("two addresses", &["config", "check", "--port", "70000"]),
    ];
    let mut all = String::new();
    for (name, arguments) in cases {
        let code = if name == "two addresses" { 2 } else { 1 };
        let text = refused(arguments, code).await.replace(&folder.path().display().to_string(), "DIR");
        all.push_str(&format!("## {name}\n{text}\n"));
    }
    expect_file!["snapshots/looked_for.txt"].assert_eq(&all);
    assert!(!all.contains("geheim"));
}

#[tokio::test]
async fn config_show_shows_the_command_that_would_be_served() {
    let shown = told(&["config", "show", "--port", "9000", "--", "npx", "-y", "foo bar"]).await;
    for line in [
        "listen = \"127.0.0.1:9000\"                # flag --listen",
        "command = [\"npx\", \"-y\", \"foo bar\"]       # flag --",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}

#[tokio::test]
async fn a_command_without_its_dashes_is_understood() {
    let text = refused(&["serve", "--port", "0", "npx", "-y", "foo"], 2).await;
    expect_test::expect![[r"
        error: `npx` is not an option of `tenure serve`

        hint: did you mean `tenure serve --port 0 -- npx -y foo`?
    "]]
    .assert_eq(&text);
    // A word that is not a command gets the usual text.
    let text = refused(&["serve", "--prot", "0"], 2).await;
    assert!(text.contains("unexpected argument '--prot'") && text.contains("--port"), "{text}");
}

#[tokio::test]
async fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = told(&["completions", shell]).await;
        assert!(
            script.contains("tenure") && script.contains("serve") && script.contains("listen"),
            "{shell}"
        );
    }
    assert!(
        refused(&["completions", "tcsh"], 2)
            .await
            .contains("[possible values: bash, elvish, fish, powershell, zsh]")
    );
}
