//! Writes `docs/configuration.md` and `tenure.example.toml` from the table of keys.
//!
//! Only tests use it: they fail when the files and the table differ, and update the files when asked.

use super::keys::{ConfigKey, Draft, KEYS, SECTIONS, key, variable};
use super::profile::Profile;
use super::renamed::{Became, RENAMED};

const INTRO: &str = "\
<!-- Generated from `crates/tenure/src/config/`; edit the table in `keys.rs`, then run
     `UPDATE_EXPECT=1 cargo test -p tenure --lib config`. -->

# Configuration

A value comes from one of six layers. A later layer wins:

1. the built-in defaults,
2. the profile, if one is chosen,
3. `compat`, if clients of earlier designs are served,
4. the file given with `--config FILE` or `TENURE_CONFIG`, in TOML,
5. environment variables that start with `TENURE_`,
6. flags: the ones named below, or `--set KEY=VALUE` for any key.

`tenure config show` prints every value in force and the layer it comes from; `tenure config check` says whether the
configuration can be used. An unknown key or variable is an error that names the closest known one.
`tenure.example.toml` shows every key as it is written in a file.

## How values are written

- **Durations** are strings with units, the largest first: `\"250ms\"`, `\"30s\"`, `\"1h30m\"`, `\"7d\"`. A bare number is an
  error, because it does not say its unit. Where it is noted, `\"infinity\"` means no limit. The longest is `\"3650d\"`.
- **Sizes** are strings with a unit, `\"512B\"`, `\"64KiB\"`, `\"4MiB\"`, `\"1GiB\"`, or a plain number of bytes.
- **Lists** are arrays in a file, `[\"a.example.com\", \"b.example.com\"]`, and have commas between their items elsewhere:
  `TENURE_HTTP_ALLOWED_HOSTS=a.example.com,b.example.com`.
- **Paths** are relative to the working directory.

An environment variable that is empty counts as not set. The variables that Kubernetes makes for a service called
`tenure` (`TENURE_SERVICE_HOST`, `TENURE_PORT` and the like) are ignored.
";

const BACKENDS: &str = "
## Several servers: `[[backend]]`

A file may have any number of these tables, in place of `child.command` and `upstream.url`. `docs/gateway.md` says how they are
served.

| key | meaning |
|---|---|
| `name` | Small letters, digits and dashes. The server's own endpoint is `/mcp/NAME`. |
| `prefix` | What stands before the names of its tools and prompts at `/mcp`, where all are served together. The name, if it is left out; `\"\"` for none, which one of them may have. |
| `command` or `url` | The server: a program, as in `[child]`, or one elsewhere, as in `[upstream]`. |
| any other key of `[child]` or `[upstream]` | For this server alone. What is left out is as in those sections. |
";

const ISSUERS: &str = "
## Issuers of tokens: `[[issuer]]`

A file may have any number of these tables. `docs/auth.md` shows how to use them.

| key | meaning |
|---|---|
| `name` | Letters, digits, `-` and `_`. Its users are called `NAME:SUBJECT`. |
| `url` | What its tokens have as `iss`, byte for byte. |
| `keys` | Where its keys are: a URL, `file:PATH`, or `none` if its tokens are opaque. Without it, its metadata says so (RFC 8414, OpenID Connect). |
| `algorithms` | The algorithms that its tokens may be signed with. Without it: RS256, PS256, ES256, ES384 and EdDSA. |
| `audiences` | Audiences that are accepted beside the URL of the endpoint. |
| `require_at_jwt` | Whether only tokens of the type `at+jwt` are accepted. |
| `scope_prefix` | A prefix of its scopes that is left out. |
| `client_id`, `client_secret` | Our name and secret when we ask it about opaque tokens (RFC 7662). The secret is `env:VARIABLE` or `file:PATH`. |
| `introspection_url` | Where we ask. Without it, its metadata says so. |
";

const CHECKS: &str = "
## What must fit together

- `tls.cert` and `tls.key` are set together or not at all; `tls.client_ca` needs them.
- A server that listens beyond loopback needs credentials: `auth.keys_file`, `auth.certificates` or an `[[issuer]]`, or `auth = \"none\"`.
- An `[[issuer]]` needs `auth.public_url`, unless the server listens on a fixed port of loopback. `auth.certificates` needs `tls.client_ca`.
- `upstream.auth` needs `upstream.client_id`; \"client_credentials\" needs `upstream.client_secret` or `upstream.client_key`, and
  \"token_exchange\" an `[[issuer]]` and `upstream.token_url` or `upstream.issuer`.
- `child.identity` and `child.share` exclude each other.
- `child.command`, `upstream.url` and `[[backend]]` exclude each other. Names and prefixes of backends differ.
- `limits.backends` names only backends that there are.
- `timeouts.request` is not longer than `timeouts.max_request`.

The server starts with a warning when

- `listen` is not a loopback address, and `http.allowed_hosts` and `auth.public_url` are empty: every remote client would be refused;
- `session.idle_ttl` is longer than `session.max_lifetime`: sessions end by age first;
- `streams.max_event` is larger than `streams.max_session_bytes`: the largest events could not be replayed.
";

/// `docs/configuration.md`.
pub(super) fn markdown() -> String {
    let mut text = INTRO.to_owned();
    text.push_str("\n## Keys\n");
    for (section, about) in SECTIONS {
        let title = if section.is_empty() { "Top level".to_owned() } else { format!("`[{section}]`") };
        text.push_str(&format!("\n### {title}\n\n{about}\n\n"));
        text.push_str("| key | variable, flag | default | meaning |\n|---|---|---|---|\n");
        for key in keys_of(section) {
            let flag = key.flag().map(|flag| format!(", `{flag}`")).unwrap_or_default();
            let default = default(key).map_or_else(|| "not set".to_owned(), |value| format!("`{value}`"));
            let (path, variable, doc) = (key.path, variable(key.path), doc(key));
            text.push_str(&format!("| `{path}` | `{variable}`{flag} | {default} | {doc} |\n"));
        }
    }
    text.push_str(ISSUERS);
    text.push_str(BACKENDS);
    text.push_str(CHECKS);
    text.push_str(&profiles());
    text.push_str(&renamed());
    text
}

fn profiles() -> String {
    let mut text = String::from(
        "\n## Profiles\n\n\
         A profile changes defaults and nothing else; every key can still be set. Without one the defaults above hold.\n\n\
         | profile | for | sets |\n|---|---|---|\n",
    );
    for profile in Profile::ALL {
        let sets: Vec<_> =
            profile.settings().iter().map(|(path, value)| format!("`{path} = \"{value}\"`")).collect();
        text.push_str(&format!("| `{}` | {} | {} |\n", profile.as_str(), profile.purpose(), sets.join(", ")));
    }
    text.push_str(
        "\nThere is no cleanup interval to choose: every session expires at its own deadline, and nothing is swept.\n",
    );
    text
}

fn renamed() -> String {
    let mut text = String::from(
        "\n## Names from elsewhere\n\n\
         These names fail with an error that says what to write instead.\n\n\
         | name | here |\n|---|---|\n",
    );
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (name, became) in RENAMED {
        let here = match became {
            Became::Key(path) => format!("`{path}`"),
            Became::Gone(reason) => format!("not needed: {reason}"),
        };
        let name = format!("`{name}`");
        match rows.iter_mut().find(|(known, _)| *known == here) {
            Some((_, names)) => names.push(name),
            None => rows.push((here, vec![name])),
        }
    }
    for (here, names) in rows {
        text.push_str(&format!("| {} | {here} |\n", names.join(", ")));
    }
    text
}

/// `tenure.example.toml`.
pub(super) fn example() -> String {
    let mut text = String::from(
        "# Every setting of `tenure serve`, with its default. Remove the `#` in front of a key to set it.\n\
         # Generated from `crates/tenure/src/config/`; `docs/configuration.md` says more.\n",
    );
    for (section, about) in SECTIONS {
        text.push_str(&format!("\n## {about}\n"));
        if !section.is_empty() {
            text.push_str(&format!("[{section}]\n"));
        }
        for key in keys_of(section) {
            text.push('\n');
            for line in wrap(&doc(key).replace('`', "'"), 96) {
                text.push_str(&format!("# {line}\n"));
            }
            let value = default(key).unwrap_or_else(|| example_of(key).to_owned());
            text.push_str(&format!("#{} = {value}\n", key.split().1));
        }
    }
    text.push_str(
        "\n## Issuers of tokens. `[auth]` says what their tokens are issued for.\n\
         # [[issuer]]\n# name = \"corp\"\n# url = \"https://id.example.com\"\n",
    );
    text.push_str(
        "\n## Several servers behind, in place of one. Each has its endpoint, and all are served together at /mcp.\n\
         # [[backend]]\n# name = \"files\"\n\
         # command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv/files\"]\n\
         #\n# [[backend]]\n# name = \"search\"\n# url = \"https://mcp.example.com/mcp\"\n",
    );
    text
}

/// The example for a key that has no default.
fn example_of(key: &ConfigKey) -> &'static str {
    match key.path {
        "profile" => "\"single_node\"",
        "name" => "\"notes\"",
        "data_sessions.version" => "2",
        "admin.listen" => "\"127.0.0.1:8485\"",
        "admin.keys_file" => "\"/etc/tenure/operators.toml\"",
        "admin.scope" => "\"ops\"",
        "cluster.listen" => "\"10.0.0.1:8486\"",
        "cluster.advertise" => "\"tenure-1.internal:8486\"",
        "control.path" => "\"/run/tenure/control.sock\"",
        "session.max_parallel_wakes" => "64",
        "store_key_file" => "\"/etc/tenure/store.key\"",
        "nats.credentials_file" => "\"/etc/tenure/nats.creds\"",
        "nats.nkey" => "\"file:/etc/tenure/nats.nkey\"",
        "nats.token" => "\"env:NATS_TOKEN\"",
        "nats.user" => "\"tenure\"",
        "nats.password" => "\"env:NATS_PASSWORD\"",
        "nats.tls_ca" => "\"/etc/tenure/nats-ca.pem\"",
        "nats.tls_cert" => "\"/etc/tenure/nats-cert.pem\"",
        "nats.tls_key" => "\"/etc/tenure/nats-key.pem\"",
        "nats.replicas" => "3",
        "audit.file" => "\"/var/log/tenure/audit.jsonl\"",
        "audit.key_file" => "\"/etc/tenure/audit.key\"",
        "metrics.listen" => "\"127.0.0.1:9464\"",
        "traces.endpoint" => "\"http://127.0.0.1:4318\"",
        "traces.sample" => "\"5%\"",
        "metrics.report" => "\"5m\"",
        "audit.head_file" => "\"/mnt/elsewhere/audit.head\"",
        "tls.cert" => "\"/etc/tenure/cert.pem\"",
        "tls.key" => "\"/etc/tenure/key.pem\"",
        "tls.client_ca" => "\"/etc/tenure/clients.pem\"",
        "auth.public_url" => "\"https://mcp.example.com\"",
        "auth.keys_file" => "\"/etc/tenure/keys.toml\"",
        "upstream.url" => "\"https://mcp.example.com/mcp\"",
        "upstream.token_url" => "\"https://id.example.com/token\"",
        "upstream.issuer" => "\"https://id.example.com\"",
        "upstream.client_id" => "\"gateway\"",
        "upstream.client_secret" => "\"env:UPSTREAM_SECRET\"",
        "upstream.client_key" => "\"/etc/tenure/client.pem\"",
        "upstream.client_key_id" => "\"key-1\"",
        "upstream.scope" => "\"tools:use\"",
        "upstream.resource" => "\"https://mcp.example.com/mcp\"",
        "upstream.audience" => "\"mcp-behind\"",
        "upstream.identity_key" => "\"/etc/tenure/identity.pem\"",
        "http.max_connections_per_peer" => "5000",
        "child.folder" => "\"/var/lib/some-server\"",
        "child.max_memory" => "\"2GiB\"",
        "clients.max_share" => "\"50%\"",
        "limits.initialize" => "\"30/min\"",
        "limits.failed_credentials" => "\"10/min\"",
        "limits.principal_concurrent" => "32",
        "limits.calls_per_day" => "10000",
        "limits.calls_per_month" => "200000",
        "child.max_files" => "1024",
        "exchanges.state_key_file" => "\"/etc/tenure/states.key\"",
        "data_sessions.carry_key_file" => "\"/etc/tenure/carry.key\"",
        other => panic!("`{other}` has no default: give it an example"),
    }
}

fn keys_of(section: &str) -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(move |key| key.split().0 == section)
}

fn default(key: &ConfigKey) -> Option<String> {
    (key.show)(&Draft::default())
}

fn doc(key: &ConfigKey) -> &'static str {
    key.doc.trim()
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

#[test]
fn the_reference_follows_the_table() {
    expect_test::expect_file!["../../../../docs/configuration.md"].assert_eq(&markdown());
}

#[test]
fn the_example_follows_the_table() {
    expect_test::expect_file!["../../../../tenure.example.toml"].assert_eq(&example());
}

#[test]
fn every_section_and_every_key_is_explained() {
    for key in KEYS {
        assert!(SECTIONS.iter().any(|(section, _)| *section == key.split().0), "{}", key.path);
        assert!(doc(key).ends_with('.'), "{}", key.path);
    }
    for (section, _) in SECTIONS {
        assert!(keys_of(section).next().is_some(), "{section}");
    }
}

#[test]
fn every_old_name_leads_to_a_key_and_hides_none() {
    for (name, became) in RENAMED {
        assert!(key(name).is_none(), "{name}");
        assert!(KEYS.iter().all(|key| variable(key.path) != variable(name)), "{name}");
        if let Became::Key(path) = became {
            assert!(key(path).is_some(), "{path}");
        }
    }
}

#[test]
fn every_variable_names_one_key() {
    let mut variables: Vec<_> = KEYS.iter().map(|key| variable(key.path)).collect();
    variables.sort();
    variables.dedup();
    assert_eq!(variables.len(), KEYS.len());
}
