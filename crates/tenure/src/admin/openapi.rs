//! The OpenAPI document, made from the table of routes.

use serde_json::{Map, Value, json};

use super::api::BASE;
use super::error::REASONS;
use super::request::REASON;
use super::routes::{AdminRoute, Member, MemberKind, ROUTES, Shape, Verb};

/// The document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{BASE}/{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure, for operators",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The same on the control socket and at `admin.listen`. Times are milliseconds since 1970; unknown values are left out.",
        },
        "security": [{ "cookie": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "cookie": { "type": "apiKey", "in": "cookie", "name": "tenure", "description": "From `tenure admin open`." },
                "key": { "type": "http", "scheme": "bearer", "description": "A key with a scope such as `admin:viewer`." },
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["reason", "message"],
                    "properties": {
                        "reason": { "enum": REASONS.map(|(reason, ..)| reason) },
                        "message": { "type": "string" },
                        "hint": { "type": "string" },
                    },
                },
                "Rows": {
                    "type": "object",
                    "required": ["rows"],
                    "properties": {
                        "rows": { "type": "array", "items": { "type": "object" } },
                        "next": { "type": "string", "description": "`after` of the next page" },
                        "looked_at": { "type": "integer", "description": "How many were looked at, if the search was cut" },
                        "of": { "type": "integer", "description": "How many there are" },
                    },
                },
            },
        },
    })
}

fn operation(route: &AdminRoute) -> Value {
    let path = route.path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let path = path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let query = route.query.iter().map(|member| {
        json!({ "name": member.name, "in": "query", "required": member.is_required,
                "description": member.about, "schema": schema(member) })
    });
    let parameters: Vec<_> = path.chain(query).collect();
    let mut operation = json!({
        "summary": route.summary,
        "operationId": format!("{}_{}", route.method.as_str(), route.path.replace(['/', '.'], "_").replace(['{', '}'], "")),
        "x-tenure-role": route.role.as_str(),
        "x-tenure-change": route.is_change(),
        "responses": responses(route),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if route.method != Verb::Get {
        let properties: Map<_, _> =
            route.body.iter().map(|member| (member.name.to_owned(), described(member))).collect();
        let required: Vec<_> =
            route.body.iter().filter(|member| member.is_required).map(|member| member.name).collect();
        operation["requestBody"] = json!({
            "required": !required.is_empty(),
            "content": { "application/json": { "schema": {
                "type": "object",
                "additionalProperties": false,
                "required": required,
                "properties": properties,
            } } },
        });
    }
    operation
}

fn responses(route: &AdminRoute) -> Value {
    let content = match route.shape {
        Shape::Rows => json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Rows" } } }),
        Shape::Object => json!({ "application/json": { "schema": { "type": "object" } } }),
        Shape::Text => json!({ "text/plain; version=0.0.4": { "schema": { "type": "string" } } }),
        Shape::Events => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
    };
    json!({
        "200": { "description": "Done", "content": content },
        "default": {
            "description": "Not done",
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
        },
    })
}

fn described(member: &Member) -> Value {
    let mut schema = schema(member);
    schema["description"] = member.about.into();
    schema
}

fn schema(member: &Member) -> Value {
    match member.kind {
        MemberKind::Text => json!({ "type": "string" }),
        MemberKind::Reason => {
            json!({ "type": "string", "minLength": REASON.start(), "maxLength": REASON.end() })
        }
        MemberKind::Count => json!({ "type": "integer", "minimum": 0 }),
        MemberKind::Flag => json!({ "type": "boolean" }),
        MemberKind::Word(words) => json!({ "enum": words }),
        MemberKind::Object => json!({ "type": "object" }),
        MemberKind::Any => json!({}),
    }
}
