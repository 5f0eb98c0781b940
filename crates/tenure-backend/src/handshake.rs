//! The params of `initialize` as a server behind gets them.

use serde::Deserialize;
use tenure_protocol::RawJson;
use tenure_session::backend::Open;

/// The client's own, with the revision that the session speaks: one that we do not know must not reach a server.
pub(crate) fn params_for(open: &Open) -> RawJson {
    #[derive(Deserialize)]
    struct Asked {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    if open.params.read::<Asked>().is_ok_and(|asked| asked.version == open.revision.as_str()) {
        return open.params.clone();
    }
    let Ok(mut params) = open.params.read::<serde_json::Map<String, serde_json::Value>>() else {
        return open.params.clone();
    };
    params.insert("protocolVersion".to_owned(), open.revision.as_str().into());
    RawJson::of(&params)
}
