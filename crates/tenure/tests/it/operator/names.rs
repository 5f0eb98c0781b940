//! How a session is named, and what is said when a name does not fit.

use expect_test::expect_file;

use super::place::{Place, digits, label};
use crate::support::session::Session;

#[tokio::test]
async fn a_session_is_found_by_key_label_first_digits_and_id() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let key = digits(&session);
    for name in [&key, &key[..3], &key.to_uppercase(), &label(&session), &session.id] {
        let shown = place.told(&["sessions", "show", name]).await;
        assert!(shown.starts_with(&label(&session)), "{name}: {shown}");
    }
}

#[tokio::test]
async fn a_name_that_fits_nothing_is_explained() {
    let place = Place::new();
    let server = place.serve().await;
    Session::start(server.address()).await;
    let unknown = place.refused(&["sessions", "show", "00000000000000000000000000000000"]).await;
    expect_file!["snapshots/unknown_session.txt"].assert_eq(&unknown);
    let bad = place.refused(&["sessions", "show", "my session"]).await;
    expect_file!["snapshots/bad_name.txt"].assert_eq(&bad);
}

#[tokio::test]
async fn a_name_that_fits_several_lists_them() {
    let place = Place::new();
    let server = place.serve().await;
    let mut sessions = Vec::new();
    // With 17 sessions two of them begin with the same digit.
    let shared = loop {
        sessions.push(digits(&Session::start(server.address()).await));
        let first = sessions.last().unwrap()[..1].to_owned();
        if sessions.iter().filter(|key| key.starts_with(&first)).count() == 2 {
            break first;
        }
    };
    let mut fitting: Vec<_> = sessions.iter().filter(|key| key.starts_with(&shared)).collect();
    fitting.sort();
    let said = place.refused(&["sessions", "revoke", &shared]).await;
    let expected = format!(
        "error: `{shared}` fits several sessions:\n  {}  awake\n  {}  awake\n\nhint: write more digits of the key\n",
        fitting[0], fitting[1]
    );
    assert_eq!(said, expected);
    assert_eq!(place.rows(&["--state", "awake"]).await.len(), sessions.len(), "none was revoked");
}
