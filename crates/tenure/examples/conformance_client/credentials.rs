//! What the suite gives a client to prove who it is, as settings of the gateway.

use std::io::Write as _;

use anyhow::Context;
use serde_json::Value;
use tempfile::NamedTempFile;

/// Settings of the gateway, as flags set them.
type Settings = Vec<(String, String)>;

/// The settings for a scenario, and the file with the key, if there is one.
pub(crate) fn settings(scenario: &str, context: &Value) -> anyhow::Result<(Settings, Option<NamedTempFile>)> {
    if !scenario.starts_with("auth/client-credentials") {
        return Ok((Vec::new(), None));
    }
    let given = |name: &str| context[name].as_str().with_context(|| format!("the suite gives no {name}"));
    let set = |key: &str, value: &str| (format!("upstream.{key}"), value.to_owned());
    let mut settings = vec![set("auth", "client_credentials"), set("client_id", given("client_id")?)];
    if scenario.ends_with("-basic") {
        settings.push(set("client_secret", given("client_secret")?));
        return Ok((settings, None));
    }
    let mut file = NamedTempFile::new()?;
    file.write_all(given("private_key_pem")?.as_bytes())?;
    settings.push(set("client_key", &file.path().display().to_string()));
    Ok((settings, Some(file)))
}
