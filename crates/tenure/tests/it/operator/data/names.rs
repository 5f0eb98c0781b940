//! How a data session is named, and what is said when a name does not fit.

use expect_test::expect_file;
use serde_json::Value;

use super::support::Client;
use crate::operator::place::{Place, kill};
use crate::support::session::Session;

#[tokio::test]
async fn a_data_session_is_found_by_name_key_id_and_handle() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    let row = place.data_rows(&[]).await.remove(0);
    let (key, name) = (row["key"].as_str().unwrap(), row["name"].as_str().unwrap());
    for text in [name, &name[..5], &name[2..], &name[2..].to_uppercase(), key, &client.id] {
        let shown = place.data(&["show", text]).await;
        assert!(shown.starts_with(&format!("{name}  {key}\n")), "{text}: {shown}");
    }
    let made: Value =
        serde_json::from_str(&place.data(&["create", "--owner", "ann", "--json"]).await).unwrap();
    for text in [&made["id"], &made["handle"]] {
        let shown = place.data(&["show", text.as_str().unwrap()]).await;
        assert!(shown.starts_with(made["name"].as_str().unwrap()), "{text}: {shown}");
    }
    kill(server).await;
    let shown = place.data(&["show", &client.id]).await;
    assert!(shown.starts_with(name), "{shown}");
}

#[tokio::test]
async fn a_name_that_fits_nothing_is_explained_and_nothing_is_done() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    let name = place.data_name().await;
    let mut all = String::new();
    for wrong in [
        "00000000000000000000000000000000",
        "my notes",
        "s-4f3a9c01",
        "sess-00000000000000000000000000000000",
        "basket_AAAAAAAAAAAAAAAAAAAAAA",
    ] {
        let said = place.data_refused(&["revoke", &name, wrong]).await;
        all.push_str(&format!("## {wrong}\n{said}\n"));
    }
    expect_file!["../snapshots/data_names.txt"].assert_eq(&all);
    assert_eq!(client.notes().await, serde_json::json!([]), "it is alive");
}

#[tokio::test]
async fn a_name_that_fits_several_lists_them() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    // With 17 data sessions the names of two begin with the same digit.
    let (digit, mut keys) = loop {
        session.workspace().await;
        let rows = place.data_rows(&[]).await;
        let first = |row: &Value| row["name"].as_str().unwrap()[2..3].to_owned();
        let twice =
            rows.iter().find(|row| rows.iter().filter(|other| first(other) == first(row)).count() > 1);
        if let Some(row) = twice {
            let fitting = rows.iter().filter(|other| first(other) == first(row));
            break (
                first(row),
                fitting.map(|row| row["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            );
        }
    };
    keys.sort();
    let said = place.refused(&["sessions", "data", "revoke", &format!("d-{digit}")]).await;
    let expected = format!(
        "error: `d-{digit}` fits several data sessions:\n  {}  active\n  {}  active\n\n\
         hint: write more of the name, or the whole key\n",
        keys[0], keys[1]
    );
    assert_eq!(said, expected);
    assert!(place.data_rows(&["--state", "ended"]).await.is_empty());
}
