//! Who gets in: codes, cookies and keys, and no page of another site (AD4).

use serde_json::json;
use tenure_auth::UnixSeconds;
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_auth::scope::ScopeSet;

use super::world::{AsValue, World, from_page, order, refusal};
use crate::operator::place::digits;
use crate::support::client::Ask;
use crate::support::session::Session;

#[tokio::test]
async fn a_link_logs_in_once_and_the_login_can_be_ended() {
    let world = World::new().await;
    let code = world.code("operator").await;
    let code = code["code"].as_str().unwrap();
    let response = world.log_in(code).send(world.admin).await;
    assert_eq!(response.status(), 204);
    let cookie = response.header("set-cookie").unwrap().to_owned();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28800"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    assert_eq!(refusal(&world.log_in(code).send(world.admin).await), (401, "unauthorized".into()), "used");
    assert_eq!(refusal(&world.log_in("guess").send(world.admin).await), (401, "unauthorized".into()));

    let browser = world.browser("viewer").await;
    let me = browser.read("me").await;
    assert_eq!((&me["roles"], &me["via"]), (&json!(["viewer"]), &json!("link")));
    assert!(me["name"].as_str().unwrap().starts_with("uid-"), "{me}");

    // The administrator sees both, and ends one.
    let logins = world.read("logins").await;
    assert_eq!(logins["rows"].as_array().unwrap().len(), 2);
    let label = logins["rows"][0]["label"].as_str().unwrap();
    let ended = world.change(&format!("logins/{label}/revoke"), &json!({ "reason": "left the team" })).await;
    assert_eq!(ended.status(), 200, "{}", ended.text());
    assert_eq!(refusal(&browser.get("me").send(world.admin).await), (401, "unauthorized".into()));

    // Logging out ends it at the server, not only in the browser.
    let browser = world.browser("viewer").await;
    let out = from_page(world.admin, Ask::post("{}").at("/logout")).header("Cookie", &browser.cookie);
    let out = out.send(world.admin).await;
    assert_eq!(out.status(), 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(refusal(&browser.get("me").send(world.admin).await), (401, "unauthorized".into()));
}

#[tokio::test]
async fn a_code_is_given_out_on_the_control_socket_alone() {
    let world = World::new().await;
    let browser = world.browser("admin").await;
    assert_eq!(refusal(&browser.change("codes", &json!({})).await), (403, "forbidden".into()));
}

#[tokio::test]
async fn ad4_pages_of_other_sites_get_nowhere() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let browser = world.browser("admin").await;
    let key = digits(&session);
    let path = format!("sessions/{key}/revoke");
    let body = json!({ "reason": "attack" });
    let good = || browser.order("POST", &path, &body);
    // A form of another site, and of another port of this machine: with the cookie, should a browser send it.
    for (header, value) in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Origin", "http://evil.example"),
        ("Origin", "null://"),
        ("X-Tenure", "0"),
    ] {
        let response = good().header(header, value).send(world.admin).await;
        assert_eq!(refusal(&response), (403, "cross_site".into()), "{header}: {value}");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    for header in ["Sec-Fetch-Site", "X-Tenure", "Content-Type"] {
        let response = good().without(header).send(world.admin).await;
        assert_eq!(refusal(&response), (403, "cross_site".into()), "without {header}");
    }
    // A `fetch` that only reads.
    let response = browser.get("sessions").header("Sec-Fetch-Site", "cross-site").send(world.admin).await;
    assert_eq!(refusal(&response), (403, "cross_site".into()));
    // A name that was rebound to this machine.
    for host in ["evil.example", &format!("evil.example:{}", world.admin.port()), "127.0.0.1:1", ""] {
        let response = browser.get("sessions").header("Host", host).send(world.admin).await;
        assert_eq!(refusal(&response), (403, "cross_site".into()), "{host}");
    }
    // A preflight gets no permission, and a login with somebody else's code is not possible from outside.
    let preflight = Ask::new("OPTIONS", "/api/v1/sessions").header("Host", &world.admin.to_string());
    let response = preflight.header("Origin", "http://evil.example").send(world.admin).await;
    assert_eq!((response.status(), response.header("access-control-allow-origin")), (401, None));
    let code = world.code("admin").await["code"].as_str().unwrap().to_owned();
    let response = world.log_in(&code).header("Sec-Fetch-Site", "cross-site").send(world.admin).await;
    assert_eq!(refusal(&response), (403, "cross_site".into()));
    // Nothing happened; and the page itself may.
    assert_eq!(world.read(&format!("sessions/{key}")).await["state"], "awake");
    assert_eq!(good().send(world.admin).await.status(), 200);
}

#[tokio::test]
async fn ad4_the_page_cannot_be_framed_and_nothing_is_kept_of_the_api() {
    let world = World::new().await;
    let browser = world.browser("viewer").await;
    for path in ["/", "/login", "/api/v1/me", "/api/v1/nothing", "/nothing"] {
        let response = browser.get("").at(path).send(world.admin).await;
        let policy = response.header("content-security-policy").unwrap();
        for rule in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"]
        {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert_eq!(response.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(response.header("cross-origin-opener-policy"), Some("same-origin"), "{path}");
        if path.starts_with("/api") {
            assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        }
    }
}

#[tokio::test]
async fn ad9_the_page_is_served_by_the_binary_alone() {
    let world = World::new().await;
    let get = |path: &str| Ask::new("GET", path).header("Host", &world.admin.to_string());
    let document = get("/").send(world.admin).await;
    assert_eq!((document.status(), document.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = document.text();
    let files: Vec<_> = text.split('"').filter(|word| word.starts_with("/assets/")).collect();
    assert!(files.len() > 1, "{text}");
    for file in files {
        let asset = get(file).send(world.admin).await;
        assert_eq!(asset.status(), 200, "{file}");
        assert!(asset.header("cache-control").unwrap().contains("immutable"), "{file}");
        let etag = asset.header("etag").unwrap();
        let again = get(file).header("If-None-Match", etag).send(world.admin).await;
        assert_eq!((again.status(), again.text().len()), (304, 0), "{file}");
    }
    assert_eq!(get("/../Cargo.toml").send(world.admin).await.status(), 404);
}

#[tokio::test]
async fn scripts_use_keys_with_a_scope_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("operators.toml"));
    let secret = |name: &str, scopes: &str| {
        let new =
            NewKey { name: name.to_owned(), scopes: ScopeSet::parse(scopes).unwrap(), ..NewKey::default() };
        file.add(new, UnixSeconds(1)).unwrap().expose().to_owned()
    };
    let [viewer, operator, client] =
        [secret("watch", "admin:viewer"), secret("ci", "admin:operator"), secret("client", "read")];
    let path = folder.path().join("operators.toml").display().to_string();
    let mut world = World::with(&[("admin.keys_file", &path)]).await;
    let (session, _link) = world.steered.session().await;
    let by = |secret: &str, ask: Ask| {
        ask.header("Host", &world.admin.to_string()).header("Authorization", &format!("Bearer {secret}"))
    };
    let me = by(&viewer, Ask::new("GET", "/api/v1/me")).send(world.admin).await.value();
    assert_eq!(
        (&me["name"], &me["via"], &me["roles"]),
        (&json!("key:watch"), &json!("key"), &json!(["viewer"]))
    );

    let path = format!("sessions/{}/revoke", digits(&session));
    let body = json!({ "reason": "too many calls" });
    let response = by(&viewer, order("POST", &path, &body)).send(world.admin).await;
    assert_eq!(refusal(&response), (403, "forbidden".into()));
    for wrong in [client.as_str(), "tnr_wrong", "", "a b"] {
        let response = by(wrong, order("POST", &path, &body)).send(world.admin).await;
        assert!(matches!(response.status(), 401 | 403), "{wrong}: {}", response.text());
    }
    let none = order("POST", &path, &body).header("Host", &world.admin.to_string()).send(world.admin).await;
    assert_eq!((none.status(), none.header("www-authenticate")), (401, Some("Bearer")));

    let response = by(&operator, order("POST", &path, &body)).send(world.admin).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    let records = world.recorded().await;
    let gist: Vec<_> = records
        .iter()
        .filter(|record| record["method"] == "sessions.revoke")
        .map(|record| {
            format!(
                "{}:{} {} {}",
                record["principal"]["iss"], record["principal"]["sub"], record["outcome"], record["reason"]
            )
        })
        .collect();
    // What was not allowed is recorded too.
    assert_eq!(gist, [r#""key":"watch" "error" "too many calls""#, r#""key":"ci" "ok" "too many calls""#,]);
}

#[tokio::test]
async fn a_stream_ends_when_its_login_does() {
    let world = World::new().await;
    let browser = world.browser("viewer").await;
    let mut live = browser.live().await;
    let event = live.event().await.expect("an overview at once");
    assert_eq!(event.event.as_deref(), Some("overview"));
    let label = world.read("logins").await["rows"][0]["label"].as_str().unwrap().to_owned();
    world.change(&format!("logins/{label}/revoke"), &json!({ "reason": "left the team" })).await;
    while live.event().await.is_some() {}
}

#[tokio::test]
async fn bodies_and_paths_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let browser = world.browser("admin").await;
    let huge = "x".repeat(300 << 10);
    let body = json!({ "principal": huge, "reason": "why not" });
    assert_eq!(refusal(&browser.change("principals/revoke", &body).await), (400, "bad_request".into()));
    let session = Session::start(world.steered.address()).await;
    for (path, expected) in [
        ("sessions/xyz", 400),
        ("sessions/00000000000000000000000000000000", 404),
        ("sessions?state=asleep", 400),
        ("sessions?statee=awake", 400),
        ("sessions?after=xyz", 400),
        ("sessions?prefix=xyz", 400),
        ("nothing", 404),
        ("", 404),
        ("sessions/", 404),
    ] {
        assert_eq!(browser.get(path).send(world.admin).await.status(), expected, "{path}");
    }
    let put = browser.order("PUT", &format!("sessions/{}/settings", digits(&session)), &json!({}));
    let response = put.send(world.admin).await;
    assert_eq!(
        (refusal(&response), response.header("allow")),
        ((405, "method_not_allowed".into()), Some("PATCH"))
    );
}
