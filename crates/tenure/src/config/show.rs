//! The configuration in force as TOML, with the source of each value. Secrets that stand in it are hidden.

use super::keys::{KEYS, SECTIONS};
use super::layers::Layered;
use crate::url_text::marked_in;

/// Writes every key. Loading the text gives the same configuration again, but for secrets that stand in it themselves.
pub(super) fn show(layered: &Layered) -> String {
    let mut text =
        String::from("# The configuration in force. Each value is followed by where it comes from.\n");
    for (section, _) in SECTIONS {
        text.push('\n');
        if !section.is_empty() {
            text.push_str(&format!("[{section}]\n"));
        }
        for key in KEYS.iter().filter(|key| key.split().0 == *section) {
            let (_, name) = key.split();
            match (key.show)(&layered.draft) {
                Some(value) => {
                    let setting = format!("{name} = {}", marked_in(&value));
                    text.push_str(&format!("{setting:<40} # {}\n", layered.origin(key.path)));
                }
                None => text.push_str(&format!("# {name} is not set\n")),
            }
        }
    }
    for issuer in &layered.draft.config.auth.issuers {
        text.push_str(&issuer.show());
    }
    for backend in &layered.backends {
        text.push_str(&backend.show());
    }
    text
}
