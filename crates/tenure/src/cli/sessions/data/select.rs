//! `tenure sessions data select`: the secret names of a data session, and how a client uses them.

use serde_json::json;
use tenure_session::port::clock::Time;

use crate::cli::facts::Facts;
use crate::cli::paint::{Paint, Tone};
use crate::cli::rows::ANONYMOUS;
use crate::operator::NamedData;
use crate::time_text::{date, until};

/// The names for people.
pub(super) fn text(named: &NamedData, now: Time, paint: Paint) -> String {
    let row = &named.row;
    let mut facts = Facts::new(&row.name, &row.key, paint);
    facts.line(Tone::Plain, "");
    facts.add("owner", Some(row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()));
    facts.add("id", Some(named.id.clone()));
    facts.add("handle", Some(named.handle.clone()));
    let expires = row.expires.map(|expires| format!("{} ({})", date(expires), until(expires, now)));
    facts.add("expires", expires.or_else(|| Some("never".to_owned())));
    facts.section(
        "in `params._meta` of each request, one of",
        [
            format!("\"mcp/session\": {}", json!({ "id": named.id })),
            format!("\"io.modelcontextprotocol/session\": {}", json!({ "sessionId": named.id })),
        ],
    );
    facts.section(
        "or among the arguments of a tool",
        [format!("\"{}\": {}", named.argument, json!(named.handle))],
    );
    facts.into_text()
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
        .assert_eq(&text(&named, now, Paint::of(false)));
    }
}
