//! `tenure limits show`: what principals have left in a running server.

use serde_json::{Value, json};

use super::place::{Place, kill, stop};
use crate::support::session::Session;

#[tokio::test]
async fn what_a_principal_has_left_is_shown_and_its_quotas_outlive_a_restart() {
    let place = Place::new();
    let flags = [
        "--set",
        "limits.principal=1/h burst 50",
        "--set",
        "limits.principal_concurrent=4",
        "--set",
        "limits.calls_per_day=10",
        "--set",
        "limits.calls_per_month=100",
    ];
    let server = place.serve_with(&flags).await;
    assert_eq!(place.told(&["limits", "show", "--json"]).await, "");
    let session = Session::start(server.address()).await;
    for id in 0..3 {
        session.tool(id, "public_echo", &json!({ "text": "hello" })).await;
    }
    let left = |text: &str| {
        let row: Value = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("one row: {text:?}"));
        let limits = row["limits"].as_array().unwrap().iter();
        let limits =
            limits.map(|line| (line["what"].as_str().unwrap().to_owned(), line["left"].as_u64().unwrap()));
        (row["principal"].clone(), limits.collect::<Vec<_>>())
    };
    let expected = [("rate", 47), ("at_once", 4), ("day", 7), ("month", 97)];
    let expected = (Value::Null, expected.map(|(what, left)| (what.to_owned(), left)).to_vec());
    assert_eq!(left(&place.told(&["limits", "show", "--json"]).await), expected);
    assert_eq!(left(&place.told(&["limits", "show", "anonymous", "--json"]).await), expected);
    let (name, of_other) = left(&place.told(&["limits", "show", "corp:ann", "--json"]).await);
    assert_eq!((name, of_other[0].1), (json!("corp:ann"), 50));
    let shown = place.told(&["limits", "show"]).await;
    assert!(shown.contains("anonymous") && shown.contains("10/d") && shown.contains("100/month"), "{shown}");

    // Counts are written every five seconds, and when the server stops.
    stop(server).await;
    let server = place.serve_with(&flags).await;
    assert_eq!(left(&place.told(&["limits", "show", "anonymous", "--json"]).await).1[2..], expected.1[2..]);
    kill(server).await;
    let offline = place.run(&["limits", "show"]).await;
    assert_eq!(offline.err, "no server has this store open, so nothing is limited\n");
}
