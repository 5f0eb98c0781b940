//! Scripts that answer in unusual ways, or not at all.

use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildCommand, ChildResponder};
use tenure_protocol::{Method, Reason};
use tenure_session::backend::Responder;

use super::{ask, client, limits, script, soon, value};

/// Reads a request and finds its id.
const READ: &str = r#"read -r call || exit 0; id=${call#*\"id\":}; id=${id%%,*};"#;

#[tokio::test]
async fn what_the_server_says_is_passed_on_or_says_why_not() {
    let long = "x".repeat(10_000);
    let table = [
        (r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"x\":1}}""#.to_owned(), Ok(json!({"x": 1}))),
        (
            r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32021,\"message\":\"m\",\"data\":{\"y\":2}}}""#.to_owned(),
            Err((-32021, "m")),
        ),
        (
            r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"resultType\":\"riddle\"}}""#.to_owned(),
            Err((-32603, "unknown type")),
        ),
        (
            format!(r#"echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"x\":\"{long}\"}}}}""#),
            Err((-32603, "longer than a message may be")),
        ),
        // Messages that are not for us, and then the answer.
        (
            r#"echo starting; echo '{"jsonrpc":"2.0","id":99,"result":{}}'; echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"; echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}""#.to_owned(),
            Ok(json!({})),
        ),
        ("exit 3".to_owned(), Err((-31010, "may or may not"))),
    ];
    for (number, (answer, expected)) in table.into_iter().enumerate() {
        let responder = ChildResponder::new(script(&format!("{READ} {answer}; cat > /dev/null")), None);
        let client = client();
        let reply = ask(&responder, &client, "tools/call", json!({"name": "t"})).await;
        match (reply, expected) {
            (Ok(result), Ok(expected)) => {
                assert_eq!(result.read::<Value>().unwrap(), expected, "row {number}")
            }
            (Err(error), Err((code, words))) => {
                assert_eq!(error.code(), code, "row {number}: {error}");
                assert!(error.message().contains(words), "row {number}: {error}");
            }
            (reply, expected) => panic!("row {number}: {reply:?} is not {expected:?}"),
        }
        assert!(client.heard().is_empty(), "row {number}");
    }
}

#[tokio::test]
async fn a_question_is_refused_and_a_ping_answered() {
    // It answers with the lines that it read.
    let text = format!(
        r#"{READ} echo '{{"jsonrpc":"2.0","id":"q","method":"roots/list"}}'; read -r refused
        echo '{{"jsonrpc":"2.0","id":"p","method":"ping"}}'; read -r answered
        echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"refused\":$refused,\"answered\":$answered}}}}"; cat"#
    );
    let responder = ChildResponder::new(script(&text), None);
    let reply = value(ask(&responder, &client(), "tools/list", json!({})).await);
    assert_eq!((&reply["refused"]["id"], &reply["refused"]["error"]["code"]), (&json!("q"), &json!(-32601)));
    assert_eq!(reply["answered"], json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
}

#[tokio::test]
async fn a_listen_may_be_ended_by_a_cancellation_alone() {
    let text = format!(
        r#"{READ}
        echo "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"notifications\":{{}},\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":\"$id\"}}}}}}"
        echo "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":$id}}}}"; cat"#
    );
    let responder = ChildResponder::new(script(&text), None);
    let client = client();
    let reply = value(ask(&responder, &client, "subscriptions/listen", json!({"notifications": {}})).await);
    let name = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(reply["_meta"][name], 7);
    let heard = client.heard();
    assert_eq!((&heard[0].0, &heard[0].1["_meta"][name]), (&Method::Acknowledged, &json!(7)));
}

#[tokio::test]
async fn a_listen_whose_client_does_not_read_ends_and_the_server_hears_of_it() {
    // It sends much news, and then the lines that it read. The cancellation and the other request come in either order.
    let text = format!(
        r#"{READ} n=0
        while [ $n -lt 1000 ]; do n=$((n+1))
            echo "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{{\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":$id}}}}}}"
        done
        read -r heard; read -r call; case $heard in *tools/list*) other=$call; call=$heard; heard=$other ;; esac
        id=${{call#*\"id\":}}; id=${{id%%,*}}; echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"heard\":$heard}}}}"; cat"#
    );
    let responder = ChildResponder::new(script(&text), None);
    let listener = client();
    let mut listen =
        responder.respond(listener.call(7, "subscriptions/listen", json!({"notifications": {}})));
    // Poll it until it is sent, and then not again until the other request is answered.
    let mut ended = None;
    while ended.is_none() && listener.heard().is_empty() {
        match futures_util::poll!(&mut listen) {
            Poll::Ready(reply) => ended = Some(reply),
            Poll::Pending => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    let reply = value(ask(&responder, &client(), "tools/list", json!({})).await);
    assert_eq!(reply["heard"]["method"], "notifications/cancelled");
    let ended = match ended {
        Some(reply) => reply,
        None => soon(listen).await,
    };
    assert!(ended.unwrap_err().is(Reason::SlowReader));
}

#[tokio::test]
async fn a_server_that_keeps_dying_is_not_started_again_at_once() {
    let responder = ChildResponder::new(script("exit 1"), None);
    let client = client();
    let mut last = String::new();
    for _ in 0..12 {
        let error = ask(&responder, &client, "tools/list", json!({})).await.unwrap_err();
        last = error.message();
        // In this case it was not sent; in the earlier cases it may have been carried out.
        if error.is(Reason::BackendUnavailable) && last.contains("keeps failing") {
            return;
        }
        assert!(error.is(Reason::Interrupted), "{error:?}");
    }
    panic!("{last}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_so() {
    let mut command = ChildCommand::new("/no/such/program", Vec::<String>::new());
    command.limits = limits();
    let responder = ChildResponder::new(command, None);
    let error = ask(&responder, &client(), "tools/list", json!({})).await.unwrap_err();
    assert!(
        error.is(Reason::BackendUnavailable) && error.message().contains("could not be started"),
        "{error:?}"
    );
}
