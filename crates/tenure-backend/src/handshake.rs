//! The params of the `initialize` that we send to a server behind us.

use serde::Deserialize;
use tenure_protocol::RawJson;
use tenure_session::backend::Open;

/// The client's params with the session's revision, so that a revision unknown to us never reaches a server.
pub(crate) fn params_for(open: &Open) -> RawJson {
    #[derive(Deserialize)]
    struct RequestedVersion {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    if open
        .params
        .read::<RequestedVersion>()
        .is_ok_and(|requested| requested.version == open.revision.as_str())
    {
        return open.params.clone();
    }
    let Ok(mut params) = open.params.read::<serde_json::Map<String, serde_json::Value>>() else {
        return open.params.clone();
    };
    params.insert("protocolVersion".to_owned(), open.revision.as_str().into());
    RawJson::of(&params)
}
