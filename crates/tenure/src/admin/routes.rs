//! The one table of what can be asked. Requests are found in it and checked against it, and the document is made from it.

use hyper::Method;

use super::role::AdminRole;

/// One thing that can be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminRoute {
    pub(super) method: Verb,
    /// Below `/api/v1/`; a part in braces is variable.
    pub(super) path: &'static str,
    pub(super) does: Does,
    /// The least role that may.
    pub(super) role: AdminRole,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Member],
    pub(super) body: &'static [Member],
    pub(super) shape: Shape,
}

/// The methods of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Get,
    Post,
    Patch,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Does {
    Me,
    Overview,
    History,
    Sessions,
    EndedSessions,
    Session,
    SessionEvents,
    Calls,
    RecentCalls,
    SlowestTools,
    DataSessions,
    DataSession,
    Tasks,
    Backends,
    Backend,
    Nodes,
    Principals,
    PrincipalShow,
    Limits,
    LimitsShow,
    Usage,
    Loops,
    Config,
    Audit,
    Logins,
    LogLevel,
    SetLogLevel,
    OpenApi,
    Live,
    MakeCode,
    RevokeLogin,
    Bundle,
    Metrics,
    RestartBackend,
    Try,
    RevokeSession,
    SleepSession,
    CancelCall,
    DetachReader,
    CancelExchange,
    ChangeSettings,
    RevokeSessions,
    ResumeData,
    ClearData,
    RevokeData,
    RevokePrincipal,
    ReinstatePrincipal,
}

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// `rows`, and `next` if there are more.
    Rows,
    /// An object.
    Object,
    /// Server-sent events.
    Events,
    /// The text of `/metrics`.
    Text,
}

/// A member of a query or of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) kind: MemberKind,
    pub(super) is_required: bool,
    pub(super) about: &'static str,
}

/// What a member holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberKind {
    Text,
    /// Why something is changed.
    Reason,
    Count,
    Flag,
    Word(&'static [&'static str]),
    Object,
    Any,
}

impl Verb {
    pub(super) fn is(self, method: &Method) -> bool {
        match self {
            Self::Get => *method == Method::GET,
            Self::Post => *method == Method::POST,
            Self::Patch => *method == Method::PATCH,
        }
    }

    /// In lower case, as the document has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Patch => "patch",
        }
    }
}

impl AdminRoute {
    /// Whether it changes something: then it has a reason, and is recorded.
    pub(super) fn is_change(&self) -> bool {
        self.body.iter().any(|member| member.kind == MemberKind::Reason)
    }

    /// What the audit log calls it, such as `sessions.revoke`.
    pub(super) fn operation(&self) -> String {
        let words = self.path.split('/').filter(|word| !word.starts_with('{'));
        words.collect::<Vec<_>>().join(".")
    }

    /// The variable parts of a path that it is for.
    pub(super) fn matched<'a>(&self, path: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
        let (mut words, mut found) = (path.split('/'), Vec::new());
        for expected in self.path.split('/') {
            let word = words.next()?;
            match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) if !word.is_empty() => found.push((name, word)),
                None if word == expected => {}
                _ => return None,
            }
        }
        words.next().is_none().then_some(found)
    }
}

const fn member(name: &'static str, kind: MemberKind, about: &'static str) -> Member {
    Member { name, kind, is_required: false, about }
}

pub(super) const fn text(name: &'static str, about: &'static str) -> Member {
    member(name, MemberKind::Text, about)
}

pub(super) const fn count(name: &'static str, about: &'static str) -> Member {
    member(name, MemberKind::Count, about)
}

pub(super) const fn word(name: &'static str, words: &'static [&'static str], about: &'static str) -> Member {
    member(name, MemberKind::Word(words), about)
}

const fn flag(name: &'static str, about: &'static str) -> Member {
    member(name, MemberKind::Flag, about)
}

pub(super) const fn reason() -> Member {
    member("reason", MemberKind::Reason, "Why, in 3 to 500 characters; the audit log has it").required()
}

impl Member {
    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}

const LIMIT: Member = count("limit", "The most rows, up to 500; without it 50");
const AFTER: Member = text("after", "`next` of the page before");

/// What selects sessions; also the members of the filter of `sessions/revoke`.
pub(super) const SESSION_FILTER: [Member; 8] = [
    word("state", &["awake", "dormant", "ended"], "Where they stand"),
    text("principal", "Their owner; `anonymous` for those without"),
    text("client", "What their client calls itself"),
    text("backend", "The endpoint they were begun at"),
    text("revision", "Their revision of MCP"),
    word("waiting", &["client"], "Those that wait for an answer of their client"),
    count("older_than_s", "Those with a request that is this old"),
    text("prefix", "The first digits of their key, or of their label"),
];

const SESSION_QUERY: [Member; 10] = {
    let [state, principal, client, backend, revision, waiting, older, prefix] = SESSION_FILTER;
    [state, principal, client, backend, revision, waiting, older, prefix, LIMIT, AFTER]
};

const PRINCIPAL: Member = text("principal", "Its name, such as `corp:alice` or `key:ci`").required();
const REASON: [Member; 1] = [reason()];

const fn get(
    path: &'static str,
    does: Does,
    query: &'static [Member],
    shape: Shape,
    summary: &'static str,
) -> AdminRoute {
    AdminRoute { method: Verb::Get, path, does, role: AdminRole::Viewer, summary, query, body: &[], shape }
}

const fn post(path: &'static str, does: Does, body: &'static [Member], summary: &'static str) -> AdminRoute {
    let (role, shape) = (AdminRole::Operator, Shape::Object);
    AdminRoute { method: Verb::Post, path, does, role, summary, query: &[], body, shape }
}

impl AdminRoute {
    const fn by(self, role: AdminRole) -> Self {
        Self { role, ..self }
    }
}

/// Everything that can be asked. Of two that fit a path, the first one counts.
pub(super) const ROUTES: &[AdminRoute] = &[
    get("me", Does::Me, &[], Shape::Object, "Who asks, and what this server has"),
    get("overview", Does::Overview, &[], Shape::Object, "How the server does, with what is wrong first"),
    get(
        "history",
        Does::History,
        &[word(
            "span",
            &["10m", "24h"],
            "The last minutes second by second, or the last day; without it `10m`",
        )],
        Shape::Object,
        "Series for charts; null where nothing is known",
    ),
    get("sessions", Does::Sessions, &SESSION_QUERY, Shape::Rows, "Sessions, in the order of their keys"),
    get(
        "sessions/ended",
        Does::EndedSessions,
        &[LIMIT],
        Shape::Rows,
        "Sessions that ended lately, the newest first",
    ),
    get("sessions/{key}", Does::Session, &[], Shape::Object, "Everything about a session"),
    get(
        "sessions/{key}/events",
        Does::SessionEvents,
        &[
            count("stream", "The stream; without it 0, the one that GET opens"),
            count("after", "The position after which to begin"),
            LIMIT,
            flag("bodies", "Whether to show the messages; needs the role `payloads`"),
        ],
        Shape::Rows,
        "The kept events of a stream",
    ),
    get(
        "calls",
        Does::Calls,
        &[
            word("state", &["running", "parked", "task", "listening"], "How the client gets the result"),
            text("method", "The method of MCP"),
            text("tool", "The tool"),
            text("principal", "Who asked; `anonymous` for callers without credentials"),
            count("older_than_s", "Those that are this old"),
            LIMIT,
        ],
        Shape::Rows,
        "Requests that run, the oldest first",
    ),
    get("calls/recent", Does::RecentCalls, &[LIMIT], Shape::Rows, "Calls that have ended, the newest first"),
    get("calls/slowest", Does::SlowestTools, &[], Shape::Rows, "Tools of the last hour, the slowest first"),
    get(
        "data",
        Does::DataSessions,
        &[text("name", "The name in logs, or the key"), LIMIT, AFTER],
        Shape::Rows,
        "Data sessions",
    ),
    get(
        "data/{key}",
        Does::DataSession,
        &[flag("contents", "Whether to show the contents; needs the role `payloads`")],
        Shape::Object,
        "Everything about a data session",
    ),
    get("tasks", Does::Tasks, &[LIMIT], Shape::Rows, "Tasks, the newest first"),
    get("backends", Does::Backends, &[], Shape::Rows, "The servers behind"),
    get("backends/{name}", Does::Backend, &[], Shape::Object, "One server behind, with its tools"),
    get("nodes", Does::Nodes, &[], Shape::Rows, "The nodes that share the store"),
    get("principals", Does::Principals, &[], Shape::Rows, "Who has something here, or was revoked"),
    post("principals/show", Does::PrincipalShow, &[PRINCIPAL], "What one principal has")
        .by(AdminRole::Viewer),
    get(
        "limits",
        Does::Limits,
        &[],
        Shape::Rows,
        "What is left of limits to those that did something lately",
    ),
    post("limits/show", Does::LimitsShow, &[PRINCIPAL], "What is left of its limits to one principal")
        .by(AdminRole::Viewer),
    get("usage", Does::Usage, &[], Shape::Rows, "How much clients make the server hold"),
    get("loops", Does::Loops, &[], Shape::Rows, "The background loops"),
    get("config", Does::Config, &[], Shape::Rows, "The configuration in force, without secrets"),
    get(
        "audit",
        Does::Audit,
        &[
            text("since", "A time as records have it, or its beginning"),
            text("principal", "Who did it"),
            text("event", "What happened"),
            LIMIT,
        ],
        Shape::Rows,
        "Records of the audit log, the newest first",
    ),
    get("log", Does::LogLevel, &[], Shape::Object, "What is logged now"),
    get("logins", Does::Logins, &[], Shape::Rows, "Browsers that are logged in").by(AdminRole::Admin),
    get(
        "live",
        Does::Live,
        &[flag("calls", "Whether calls that end are told too, each of them")],
        Shape::Events,
        "News as a stream: an overview each second, and what happens",
    ),
    get("metrics", Does::Metrics, &[], Shape::Text, "The same as `/metrics`"),
    get("debug/bundle", Does::Bundle, &[], Shape::Object, "All that helps to find a fault, without secrets")
        .by(AdminRole::Admin),
    get("openapi.json", Does::OpenApi, &[], Shape::Object, "This document"),
    post(
        "codes",
        Does::MakeCode,
        &[word(
            "role",
            &["viewer", "payloads", "operator", "admin"],
            "The role of the login; without it `admin`",
        )],
        "A one-time code to log in with a browser; only on the control socket",
    )
    .by(AdminRole::Admin),
    post(
        "log",
        Does::SetLogLevel,
        &[
            text("level", "A level, or a filter such as `info,tenure_session=debug`").required(),
            count("for_s", "For how long, up to an hour").required(),
            reason(),
        ],
        "Logs by another filter for a while",
    ),
    post("logins/{label}/revoke", Does::RevokeLogin, &REASON, "Ends a login").by(AdminRole::Admin),
    post(
        "sessions/revoke",
        Does::RevokeSessions,
        &[
            member(
                "filter",
                MemberKind::Object,
                "Which sessions, with the members of the query of `sessions`",
            )
            .required(),
            count("expect", "How many there are; if there are more, nothing is done").required(),
            reason(),
        ],
        "Ends all sessions that a filter selects",
    ),
    post("sessions/{key}/revoke", Does::RevokeSession, &REASON, "Ends a session"),
    post(
        "sessions/{key}/sleep",
        Does::SleepSession,
        &REASON,
        "Makes a session dormant that nothing is done in",
    ),
    post(
        "sessions/{key}/cancel",
        Does::CancelCall,
        &[member("call", MemberKind::Any, "The client's id for the request, as JSON").required(), reason()],
        "Cancels a request of a session: its client gets an error, its server is told",
    ),
    post(
        "sessions/{key}/detach",
        Does::DetachReader,
        &[count("stream", "Its number; 0 is the one that GET opens").required(), reason()],
        "Closes the connection that reads a stream; its client comes back for the rest",
    ),
    post(
        "calls/{label}/cancel",
        Does::CancelExchange,
        &REASON,
        "Cancels a call without a session: its client gets an error, its server is told",
    ),
    AdminRoute {
        method: Verb::Patch,
        ..post(
            "sessions/{key}/settings",
            Does::ChangeSettings,
            &[
                member("metadata", MemberKind::Object, "Members to set; null removes one"),
                member("ttl_ms", MemberKind::Any, "The idle time in ms, \"infinity\" or \"default\""),
                reason(),
            ],
            "Changes the metadata and the idle time of a session",
        )
    },
    post(
        "backends/{name}/restart",
        Does::RestartBackend,
        &REASON,
        "Starts the processes of a server behind again",
    ),
    post(
        "try",
        Does::Try,
        &[
            text("backend", "The server behind; without it `main`"),
            text("tool", "The tool").required(),
            member("arguments", MemberKind::Object, "Its arguments"),
            reason(),
        ],
        "Calls a tool through the server as the operator; off unless `admin.try` is set",
    ),
    post(
        "data/{key}/resume",
        Does::ResumeData,
        &REASON,
        "Puts off the expiry of a data session, or brings it back",
    ),
    post("data/{key}/clear", Does::ClearData, &REASON, "Removes the contents of a data session"),
    post("data/{key}/revoke", Does::RevokeData, &REASON, "Ends a data session"),
    post(
        "principals/revoke",
        Does::RevokePrincipal,
        &[PRINCIPAL, flag("data", "Whether its data sessions end too"), reason()],
        "Refuses what was issued to a principal, and ends what it has",
    ),
    post(
        "principals/reinstate",
        Does::ReinstatePrincipal,
        &[PRINCIPAL, reason()],
        "Lets a principal in again",
    )
    .by(AdminRole::Admin),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_asks_for_a_reason_and_nothing_changes_by_get() {
        // They look, and their names are too long or too secret for a URL; a code changes nothing until it is used.
        let looks = [Does::PrincipalShow, Does::LimitsShow, Does::MakeCode];
        for route in ROUTES {
            assert_eq!(
                route.is_change(),
                route.method != Verb::Get && !looks.contains(&route.does),
                "{}",
                route.path
            );
            assert!(!route.is_change() || route.role >= AdminRole::Operator, "{}", route.path);
        }
    }

    #[test]
    fn a_path_is_found_once_and_variable_parts_are_not_empty() {
        for (place, route) in ROUTES.iter().enumerate() {
            let first = ROUTES
                .iter()
                .position(|other| other.method == route.method && other.matched(route.path).is_some());
            assert_eq!(first, Some(place), "{}", route.path);
        }
        fn found(path: &str) -> Option<(&'static str, Vec<(&'static str, &str)>)> {
            ROUTES.iter().find_map(|route| Some((route.path, route.matched(path)?)))
        }
        assert_eq!(found("sessions/ab/revoke"), Some(("sessions/{key}/revoke", vec![("key", "ab")])));
        assert_eq!(found("sessions/"), None);
        assert_eq!(found("sessions//revoke"), None);
        assert_eq!(found("sessions/ab/revoke/"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn operations_are_called_by_their_words() {
        let operations: Vec<_> =
            ROUTES.iter().filter(|route| route.is_change()).map(AdminRoute::operation).collect();
        expect_test::expect![[r#"
            [
                "log",
                "logins.revoke",
                "sessions.revoke",
                "sessions.revoke",
                "sessions.sleep",
                "sessions.cancel",
                "sessions.detach",
                "calls.cancel",
                "sessions.settings",
                "backends.restart",
                "try",
                "data.resume",
                "data.clear",
                "data.revoke",
                "principals.revoke",
                "principals.reinstate",
            ]
        "#]]
        .assert_debug_eq(&operations);
    }
}
