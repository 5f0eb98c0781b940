//! The macros that define the types, because two dialects have the same types with different names on the wire.

/// Types that are read and written as JSON and have a JSON schema.
macro_rules! model {
    ($($item:item)*) => {
        $(
            #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            $item
        )*
    };
}

/// The request and the response of a method. The types of the params and of the result are defined elsewhere.
macro_rules! method {
    ($name:tt: $method:ident, $request:ident($params:ident), $response:ident($result:ident)) => {
        $crate::data_session::model! {
            #[doc = concat!("The name of the method `", $name, "`.")]
            #[derive(Copy, Eq)]
            pub enum $method {
                /// The only name.
                #[serde(rename = $name)]
                Name,
            }

            #[doc = concat!("A request for `", $name, "`.")]
            pub struct $request {
                /// The version of JSON-RPC.
                pub jsonrpc: $crate::data_session::Jsonrpc,
                /// The request's id.
                pub id: $crate::data_session::RequestId,
                /// The method.
                pub method: $method,
                /// The params.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub params: Option<$params>,
            }

            #[doc = concat!("The answer to `", $name, "`.")]
            pub struct $response {
                /// The version of JSON-RPC.
                pub jsonrpc: $crate::data_session::Jsonrpc,
                /// The request's id.
                pub id: $crate::data_session::RequestId,
                /// The result.
                pub result: $result,
            }
        }
    };
}

/// A dialect with all methods.
macro_rules! dialect {
    (
        cookie: $key:tt, id: $id:tt, expiry: $expiry:tt,
        methods: $create:tt, $resume:tt, $delete:tt, $list:tt, $recover:tt, $fork:tt,
    ) => {
        use $crate::data_session::{Hints, Other, Secret, or_null};

        /// The member of `_meta` that the cookie is in.
        pub const KEY: &str = $key;

        $crate::data_session::model! {
            /// The cookie that a client sends back with every request. The id alone is enough.
            pub struct Cookie {
                /// The session's id.
                #[serde(rename = $id)]
                pub id: Secret,
                /// When the session ends if it is not used again (RFC 3339).
                #[serde(default, rename = $expiry, skip_serializing_if = "Option::is_none")]
                pub expiry: Option<String>,
                /// Sealed state that the client keeps for the server.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub state: Option<Secret>,
                /// Other members of the cookie.
                #[serde(flatten)]
                pub other: Other,
            }

            /// The metadata of a request or of a result.
            #[derive(Default)]
            pub struct Meta {
                /// The cookie; `null` in a result withdraws it.
                #[serde(
                    default,
                    rename = $key,
                    deserialize_with = "or_null",
                    skip_serializing_if = "Option::is_none"
                )]
                pub cookie: Option<Option<Cookie>>,
                /// Other members.
                #[serde(flatten)]
                pub other: Other,
            }

            /// A session, as its owner sees it.
            pub struct Session {
                /// Its id.
                #[serde(rename = $id)]
                pub id: Secret,
                /// When it ends if it is not used again (RFC 3339).
                #[serde(default, rename = $expiry, skip_serializing_if = "Option::is_none")]
                pub expiry: Option<String>,
                /// The data of the hints with which it was created.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub data: Option<serde_json::Value>,
            }

            /// The params of `create`.
            #[derive(Default)]
            pub struct CreateRequestParams {
                /// Hints for the new session.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub hints: Option<Hints>,
                /// Metadata.
                #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
                pub meta: Option<Meta>,
            }

            /// The params of a method for one session: the one with this id, or else that of the cookie.
            #[derive(Default)]
            pub struct NamedRequestParams {
                /// The session's id.
                #[serde(default, rename = $id, skip_serializing_if = "Option::is_none")]
                pub id: Option<Secret>,
                /// Hints for a copy.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub hints: Option<Hints>,
                /// Metadata.
                #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
                pub meta: Option<Meta>,
            }

            /// The params of `list`.
            #[derive(Default)]
            pub struct ListRequestParams {
                /// The last page's `nextCursor`; without it, the first page.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub cursor: Option<String>,
                /// Metadata.
                #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
                pub meta: Option<Meta>,
            }

            /// A session that was created or found, with its cookie.
            pub struct SessionResult {
                /// The session.
                #[serde(flatten)]
                pub session: Session,
                /// In the answer to `recover`: whether the session had expired.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub recovered: Option<bool>,
                /// Metadata, with the cookie.
                #[serde(rename = "_meta")]
                pub meta: Meta,
                /// Other members, which the revision adds to results.
                #[serde(flatten)]
                pub other: Other,
            }

            /// A session is deleted.
            pub struct DeleteResult {
                /// True.
                pub deleted: bool,
                /// Metadata, with `null` for the cookie.
                #[serde(rename = "_meta")]
                pub meta: Meta,
                /// Other members, which the revision adds to results.
                #[serde(flatten)]
                pub other: Other,
            }

            /// One page of the caller's sessions.
            pub struct ListResult {
                /// The sessions.
                pub sessions: Vec<Session>,
                /// The cursor of the next page; absent on the last page.
                #[serde(default, rename = "nextCursor", skip_serializing_if = "Option::is_none")]
                pub next_cursor: Option<String>,
                /// Metadata.
                #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
                pub meta: Option<Meta>,
                /// Other members, which the revision adds to results.
                #[serde(flatten)]
                pub other: Other,
            }

            /// Any request for a method of data sessions.
            #[serde(untagged)]
            pub enum ClientRequest {
                /// Creates a session.
                Create(CreateRequest),
                /// Finds a session.
                Resume(ResumeRequest),
                /// Ends a session.
                Delete(DeleteRequest),
                /// Lists the caller's sessions.
                List(ListRequest),
                /// Brings back a session that has expired and is still kept.
                Recover(RecoverRequest),
                /// Copies a session.
                Fork(ForkRequest),
            }

            /// The result of any method of data sessions.
            #[serde(untagged)]
            pub enum ServerResult {
                /// Of `create`, `resume`, `recover` and `fork`.
                Session(SessionResult),
                /// Of `delete`.
                Delete(DeleteResult),
                /// Of `list`.
                List(ListResult),
            }
        }

        /// The params of `resume`.
        pub type ResumeRequestParams = NamedRequestParams;
        /// The params of `delete`.
        pub type DeleteRequestParams = NamedRequestParams;
        /// The params of `recover`.
        pub type RecoverRequestParams = NamedRequestParams;
        /// The params of `fork`.
        pub type ForkRequestParams = NamedRequestParams;
        /// The result of `create`.
        pub type CreateResult = SessionResult;
        /// The result of `resume`.
        pub type ResumeResult = SessionResult;
        /// The result of `recover`.
        pub type RecoverResult = SessionResult;
        /// The result of `fork`.
        pub type ForkResult = SessionResult;

        $crate::data_session::method!(
            $create: CreateMethod,
            CreateRequest(CreateRequestParams),
            CreateResultResponse(CreateResult)
        );
        $crate::data_session::method!(
            $resume: ResumeMethod,
            ResumeRequest(ResumeRequestParams),
            ResumeResultResponse(ResumeResult)
        );
        $crate::data_session::method!(
            $delete: DeleteMethod,
            DeleteRequest(DeleteRequestParams),
            DeleteResultResponse(DeleteResult)
        );
        $crate::data_session::method!(
            $list: ListMethod,
            ListRequest(ListRequestParams),
            ListResultResponse(ListResult)
        );
        $crate::data_session::method!(
            $recover: RecoverMethod,
            RecoverRequest(RecoverRequestParams),
            RecoverResultResponse(RecoverResult)
        );
        $crate::data_session::method!(
            $fork: ForkMethod,
            ForkRequest(ForkRequestParams),
            ForkResultResponse(ForkResult)
        );
    };
}

pub(crate) use {dialect, method, model};
