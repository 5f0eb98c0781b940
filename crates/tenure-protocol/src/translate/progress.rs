//! Joins the progress of several attempts into one rising series.
//!
//! A client in a session sends one request, but the bridge may send it to a modern server several times. The server
//! counts from zero in each attempt, while the client must see a number that only rises, so the progress of the earlier
//! attempts is added. In the other direction the session's server has one series, and its notifications get the token
//! of the client's latest attempt. In both directions a value that does not rise is dropped.

use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::TOKEN;

/// The progress of one request, as its client sees it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Series {
    /// The progress of the earlier attempts.
    before: f64,
    /// The last value that the client got.
    last: Option<f64>,
}

impl Series {
    /// Call this when the request is sent again: the server counts from zero.
    pub fn restart(&mut self) {
        self.before = self.last.unwrap_or(self.before);
    }

    /// The params of a `notifications/progress` for the client, with its own token; `None` if the value does not rise.
    /// Numbers keep their notation as long as nothing has to be added.
    pub fn tell(&mut self, params: &RawJson, token: &RawJson) -> Option<RawJson> {
        let mut object = Object::read(object::text(params))?;
        // The standard library parses floats exactly, so the order of two numbers never changes.
        let read = |name| object.get(name).and_then(|text| text.parse::<f64>().ok());
        let (progress, total) = (read("progress")?, read("total"));
        let reached = self.before + progress;
        if !reached.is_finite() || self.last.is_some_and(|last| reached <= last) {
            return None;
        }
        self.last = Some(reached);
        object.set(TOKEN, object::text(token));
        if self.before != 0.0 {
            object.set("progress", number(reached));
            if let Some(total) = total.map(|total| self.before + total).filter(|total| total.is_finite()) {
                object.set("total", number(total));
            }
        }
        Some(object::kept(params, object.write()))
    }
}

/// Whole numbers are written as such.
fn number(value: f64) -> String {
    /// Below this every whole number is exact as a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        format!("{value:.0}")
    } else {
        serde_json::Value::from(value).to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The params that the client gets. `restart` starts a new attempt; everything else is the params of the server.
    fn told(said: &[&'static str]) -> Vec<String> {
        let mut series = Series::default();
        let token = RawJson::trusted(r#""mine""#);
        let mut heard = Vec::new();
        for said in said {
            match *said {
                "restart" => series.restart(),
                params => heard.extend(
                    series.tell(&RawJson::trusted(params), &token).map(|told| object::text(&told).to_owned()),
                ),
            }
        }
        heard
    }

    #[test]
    fn a_first_attempt_is_told_as_it_is_said() {
        let heard = told(&[
            r#"{"progressToken":1,"progress":0,"total":1.0e2,"message":"\u00e9"}"#,
            r#"{ "progress": 1.50, "progressToken": 1 }"#,
        ]);
        let expected = [
            r#"{"progressToken":"mine","progress":0,"total":1.0e2,"message":"\u00e9"}"#,
            r#"{ "progress": 1.50, "progressToken": "mine" }"#,
        ];
        assert_eq!(heard, expected);
    }

    #[test]
    fn later_attempts_go_on_where_the_last_one_was() {
        let heard = told(&[
            r#"{"progressToken":1,"progress":3,"total":4}"#,
            "restart",
            r#"{"progressToken":2,"progress":0,"total":4}"#,
            r#"{"progressToken":2,"progress":1,"total":4}"#,
            r#"{"progressToken":2,"progress":1.5,"total":null}"#,
            "restart",
            "restart",
            r#"{"progressToken":3,"progress":0.25}"#,
        ]);
        let expected = [
            r#"{"progressToken":"mine","progress":3,"total":4}"#,
            r#"{"progressToken":"mine","progress":4,"total":7}"#,
            r#"{"progressToken":"mine","progress":4.5,"total":null}"#,
            r#"{"progressToken":"mine","progress":4.75}"#,
        ];
        assert_eq!(heard, expected);
    }

    #[test]
    fn what_does_not_rise_or_is_no_number_is_dropped() {
        let heard = told(&[
            r#"{"progress":5}"#,
            r#"{"progress":5}"#,
            r#"{"progress":4}"#,
            r#"{"progress":"6"}"#,
            "{}",
            "[]",
            r#"{"progress":6}"#,
        ]);
        assert_eq!(
            heard,
            [r#"{"progress":5,"progressToken":"mine"}"#, r#"{"progress":6,"progressToken":"mine"}"#]
        );
    }

    proptest! {
        #[test]
        fn whatever_is_said_the_client_sees_only_rising_numbers(
            said in proptest::collection::vec(proptest::option::weighted(0.8, any::<f32>()), 0..40),
        ) {
            let mut series = Series::default();
            let mut last = f64::NEG_INFINITY;
            for said in said {
                match said {
                    None => series.restart(),
                    Some(value) => {
                        let params = RawJson::of(&serde_json::json!({ "progress": value, "progressToken": 1 }));
                        if let Some(told) = series.tell(&params, &RawJson::trusted("2")) {
                            let told = Object::read(object::text(&told)).unwrap();
                            prop_assert_eq!(told.get(TOKEN), Some("2"));
                            let told: f64 = told.get("progress").unwrap().parse().unwrap();
                            prop_assert!(told > last, "{} after {}", told, last);
                            last = told;
                        }
                    }
                }
            }
        }
    }
}
