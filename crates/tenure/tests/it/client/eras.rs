//! Client commands at servers of either era: the same words, the same data sessions.

use serde_json::json;

use super::home::Home;
use crate::operator::place::stop;

#[tokio::test]
async fn servers_of_one_era_alone_are_called_like_others() {
    for eras in ["modern", "legacy", "both"] {
        let home = Home::new();
        let server = home.serve(&["--set", &format!("eras={eras}")]).await;
        let url = server.url.as_str();
        home.call(&[url, "notebook_append", "text=one"]).await;
        assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": ["one"] }), "{eras}");
        assert_eq!(home.sessions(&[]).await.len(), 1, "{eras}");
        let tools = home.told(&["tools", url, "count_slowly"]).await;
        assert!(tools.contains("interval_ms"), "{eras}: {tools}");
        let counted = home.told(&["call", url, "count_slowly", "to=1", "interval_ms=1", "tag=x"]).await;
        assert_eq!(counted, "x: counted to 1\n", "{eras}");
        let about = home.told(&["read", url, "demo://about"]).await;
        assert!(!about.is_empty(), "{eras}");
        assert!(home.told(&["resources", url]).await.contains("demo://notebook/{number}"), "{eras}");
        stop(server).await;
        // Over pipes too.
        let stdio = home.stdio();
        let mut stdio: Vec<_> = stdio.iter().map(String::as_str).collect();
        let setting = format!("eras={eras}");
        stdio.extend(["--set", setting.as_str()]);
        let out = home.told(&[&["call", "public_echo", "text=hi"], &stdio[..]].concat()).await;
        assert_eq!(out, "hi\n", "{eras}");
    }
}

#[tokio::test]
async fn a_data_session_goes_on_in_the_other_era() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.call(&[url, "notebook_append", "text=one", "--era", "legacy"]).await;
    home.call(&[url, "notebook_append", "text=two", "--era", "modern"]).await;
    assert_eq!(
        home.call(&[url, "notebook_read", "--era", "legacy"]).await,
        json!({ "notes": ["one", "two"] })
    );
    assert_eq!(home.sessions(&[]).await.len(), 1);
}

#[tokio::test]
async fn an_era_that_the_server_does_not_know_is_named() {
    let home = Home::new();
    let server = home.serve(&["--set", "eras=legacy"]).await;
    let refused = home.refused(&["tools", &server.url, "--era", "modern"]).await;
    assert!(refused.starts_with("error: cannot connect to"), "{refused}");
}
