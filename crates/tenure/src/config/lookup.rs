//! From a name to its key, or to an error that names the right one.

use super::error::Problem;
use super::keys::{ConfigKey, KEYS, SECTIONS, key, variable};
use super::renamed::{Became, RENAMED};
use super::sources::{SettingEntry, ValueOrigin, is_section};
use super::value::SettingValue;
use super::value::units::write_duration;

/// Finds the key that an entry means.
pub(super) fn find(entry: &SettingEntry) -> Result<(usize, &'static ConfigKey), Problem> {
    let spell = spelling(&entry.origin);
    let known = KEYS.iter().enumerate().find(|(_, key)| spell(key.path) == entry.name);
    known.ok_or_else(|| {
        let (what, hint) = match RENAMED.iter().find(|(old, _)| spell(old) == entry.name) {
            Some((_, became)) => renamed(entry, *became),
            None if entry.name == "backend" || entry.name.starts_with("backend.") => (
                "`backend` is a list of tables".to_owned(),
                "write `[[backend]]` and its keys below".to_owned(),
            ),
            None if is_section(&entry.name) => section(&entry.name),
            None if entry.raw == SettingValue::Table => unknown_section(&entry.name),
            None => unknown(entry),
        };
        let front = match &entry.origin {
            ValueOrigin::File { .. } => format!("{}: ", entry.origin.place()),
            ValueOrigin::Flag(_) => "`--set`: ".to_owned(),
            ValueOrigin::Default
            | ValueOrigin::Profile(_)
            | ValueOrigin::Compat
            | ValueOrigin::Variable(_) => String::new(),
        };
        Problem { what: format!("{front}{what}"), hint: Some(hint) }
    })
}

/// The candidate that is most similar to the name, if one is similar enough.
pub(super) fn similar<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (candidate, likeness) = closest(name, candidates, likeness)?;
    (likeness >= ALIKE).then_some(candidate)
}

/// From this similarity on, a name counts as a typing error.
const ALIKE: f64 = 0.6;

fn closest<T>(
    name: &str,
    candidates: impl Iterator<Item = T>,
    likeness: impl Fn(&str, &T) -> f64,
) -> Option<(T, f64)> {
    let rated = candidates.map(|candidate| {
        let likeness = likeness(name, &candidate);
        (candidate, likeness)
    });
    rated.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

fn likeness(name: &str, candidate: &&str) -> f64 {
    strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase())
}

/// How this source spells the path of a key.
fn spelling(origin: &ValueOrigin) -> fn(&str) -> String {
    match origin {
        ValueOrigin::Variable(_) => variable,
        ValueOrigin::Default
        | ValueOrigin::Profile(_)
        | ValueOrigin::Compat
        | ValueOrigin::File { .. }
        | ValueOrigin::Flag(_) => str::to_owned,
    }
}

fn renamed(entry: &SettingEntry, became: Became) -> (String, String) {
    let name = &entry.name;
    match became {
        Became::Gone(reason) => (format!("`{name}` is not needed"), format!("remove it: {reason}")),
        Became::Key(path) => {
            let spelled = spelling(&entry.origin)(path);
            let expected = key(path).map(|(_, key)| (key.expected)()).unwrap_or_default();
            let hint = match milliseconds(&entry.raw) {
                Some(duration) if expected.starts_with("a duration") => match entry.origin {
                    ValueOrigin::File { .. } => format!("write `{spelled} = \"{duration}\"`"),
                    ValueOrigin::Flag(_) => format!("write `--set {spelled}={duration}`"),
                    _ => format!("write `{spelled}={duration}`"),
                },
                _ => format!("`{spelled}` takes {expected}"),
            };
            (format!("`{name}` is called `{spelled}` here"), hint)
        }
    }
}

/// The old names took plain milliseconds.
fn milliseconds(raw: &SettingValue) -> Option<String> {
    let milliseconds = u64::try_from(raw.number()?).ok()?;
    Some(write_duration(std::time::Duration::from_millis(milliseconds)))
}

fn section(name: &str) -> (String, String) {
    (format!("`{name}` is a section, not a key"), format!("write `[{name}]` and its keys below"))
}

fn unknown_section(name: &str) -> (String, String) {
    let sections: Vec<_> =
        SECTIONS.iter().map(|(section, _)| *section).filter(|name| !name.is_empty()).collect();
    (format!("unknown section `{name}`"), format!("the sections are {}", sections.join(", ")))
}

fn unknown(entry: &SettingEntry) -> (String, String) {
    let spell = spelling(&entry.origin);
    let what = match entry.origin {
        ValueOrigin::Variable(_) => format!("unknown variable `{}`", entry.name),
        _ => format!("unknown key `{}`", entry.name),
    };
    let best = closest(&entry.name, KEYS.iter(), |name, key| {
        // The common prefix of all variables must not count as similarity.
        let bare = |name: &str| name.trim_start_matches("TENURE_").to_owned();
        let (name, path) = (bare(name), bare(&spell(key.path)));
        // The section may be missing from the name.
        likeness(&name, &path.as_str()).max(likeness(&name, &key.split().1) * 0.99)
    });
    let hint = match best {
        Some((key, likeness)) if likeness >= ALIKE => format!("did you mean `{}`?", spell(key.path)),
        Some((key, _)) => format!("the closest known name is `{}`", spell(key.path)),
        None => String::new(),
    };
    (what, hint)
}
