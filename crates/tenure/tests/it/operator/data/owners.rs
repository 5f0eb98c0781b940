//! Data sessions that belong to a principal: their ids are in the store, for that principal alone.

use std::sync::Arc;

use serde_json::Value;
use tenure_session::Principal;
use tenure_session::port::clock::SystemClock;
use tenure_session::state::{StateId, StateLimits, States};
use tenure_store::disk::{Disk, Sync};

use super::support::Client;
use crate::operator::place::{Place, stop};

#[tokio::test]
async fn one_that_belongs_to_somebody_is_selected_and_used_by_them_alone() {
    let place = Place::new();
    let server = place.serve().await;
    let said =
        place.run(&["sessions", "data", "create", "--owner", "ann", "--data", "{\"counter\":7}"]).await;
    let name = place.data_name().await;
    let id = said.out.trim();
    assert_eq!(
        said.err,
        format!(
            "made {name}, a workspace; its id is a secret of `ann`, who alone can use it; `select` shows it again\n"
        )
    );
    let selected = place.run(&["sessions", "data", "select", &name]).await;
    assert_eq!(selected.err, "the id and the handle are secrets, for its owner alone\n");
    let text = selected.out;
    for part in [
        format!("  id            {id}\n"),
        format!("  \"mcp/session\": {{\"id\":\"{id}\"}}\n"),
        format!("  \"io.modelcontextprotocol/session\": {{\"sessionId\":\"{id}\"}}\n"),
        "  \"workspace_id\": \"workspace_".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let rows = place.data_rows(&["--owner", "ann"]).await;
    assert_eq!(rows.len(), 1);
    let shown = place.data(&["show", &name, "--json", "--data"]).await;
    assert!(!shown.contains(&id[5..]) && !rows[0].to_string().contains(&id[5..]), "{shown}");
    let anybody = Client::given(server.address(), id).await;
    assert_eq!(anybody.refusal().await, "session_not_found");
    stop(server).await;

    let selected: Value = serde_json::from_str(&place.data(&["select", &name, "--json"]).await).unwrap();
    assert_eq!(selected["id"], id, "also without a server");
    let store = Arc::new(Disk::open(&place.store(), Sync::Os).unwrap());
    let states = States::start(store, Arc::new(SystemClock), StateLimits::default());
    let parsed = StateId::from_cookie(id).unwrap();
    let state = states.find(&Principal::named("ann"), parsed).await.unwrap();
    assert_eq!(&state.data().0[..], b"{\"counter\":7}");
    states.find(&Principal::named("bob"), parsed).await.unwrap_err();
    states.stop().await;
}
