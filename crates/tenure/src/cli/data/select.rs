//! `tenure sessions data select`: the secret names of a data session, and how a client uses them.

use serde_json::json;

use crate::cli::paint::{Paint, Tone};
use crate::foreign::plain;
use crate::operator::{NamedData, now};
use crate::times::{date, until};
use tenure_session::port::clock::Time;

/// The names and all other values, as JSON.
pub(super) fn json(named: &NamedData) -> String {
    serde_json::to_string_pretty(named).expect("a data session has a JSON form") + "\n"
}

/// The names for people.
pub(super) fn text(named: &NamedData) -> String {
    render(named, now(), Paint::stdout())
}

fn render(named: &NamedData, now: Time, paint: Paint) -> String {
    let row = &named.row;
    let mut text = format!("{}  {}\n\n", paint.tint(Tone::Title, &row.name), row.key);
    let mut fact = |name: &str, value: &str| {
        text.push_str(&format!("  {} {value}\n", paint.tint(Tone::Quiet, &format!("{name:<13}"))));
    };
    fact("owner", &plain(&super::show::owner(row)));
    fact("id", &named.id);
    fact("handle", &named.handle);
    match row.expires {
        Some(expires) => fact("expires", &format!("{} ({})", date(expires), until(expires, now))),
        None => fact("expires", "never"),
    }
    let mut section = |title: &str, lines: &[String]| {
        text.push_str(&format!("\n{}\n", paint.tint(Tone::Title, title)));
        text.extend(lines.iter().map(|line| format!("  {line}\n")));
    };
    section(
        "in `params._meta` of each request, one of",
        &[
            format!("\"mcp/session\": {}", json!({ "id": named.id })),
            format!("\"io.modelcontextprotocol/session\": {}", json!({ "sessionId": named.id })),
        ],
    );
    section(
        "or among the arguments of a tool",
        &[format!("\"{}\": {}", named.argument, json!(named.handle))],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_use_it_is_spelled_out() {
        let now = Time(1_764_059_400_000);
        let named = json!({
            "key": "0123456789ab0000000000004f3a9c01", "name": "d-4f3a9c01", "state": "active", "owner": "ann",
            "kind": "workspace", "expires": now.0 + 1_800_000, "id": "sess-00112233445566778899aabbccddeeff",
            "handle": "workspace_ABEiM0RVZneImaq7zN3u_w", "argument": "workspace_id",
        });
        let named = serde_json::from_value(named).unwrap();
        expect_test::expect![[r#"
            d-4f3a9c01  0123456789ab0000000000004f3a9c01

              owner         ann
              id            sess-00112233445566778899aabbccddeeff
              handle        workspace_ABEiM0RVZneImaq7zN3u_w
              expires       2025-11-25 09:00:00 UTC (in 30m)

            in `params._meta` of each request, one of
              "mcp/session": {"id":"sess-00112233445566778899aabbccddeeff"}
              "io.modelcontextprotocol/session": {"sessionId":"sess-00112233445566778899aabbccddeeff"}

            or among the arguments of a tool
              "workspace_id": "workspace_ABEiM0RVZneImaq7zN3u_w"
        "#]]
        .assert_eq(&render(&named, now, Paint::of(false)));
    }
}
