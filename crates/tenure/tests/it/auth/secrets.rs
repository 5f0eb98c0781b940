//! A list of texts that must be nowhere, and the places in which a search looks for them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tenure_session::port::store::Space;
use tenure_store::open::{StoreOptions, open};

/// Texts that must be nowhere, with what they are.
#[derive(Default)]
pub(super) struct Secrets(Vec<(&'static str, String)>);

impl Secrets {
    pub(super) fn add(&mut self, what: &'static str, text: &str) {
        assert!(text.len() >= 16, "{what} is too short to be looked for: {text}");
        self.0.push((what, text.to_owned()));
    }

    /// A token, and those of its parts that no other token has.
    pub(super) fn token(&mut self, token: &str) {
        let (signed, signature) = token.rsplit_once('.').expect("a signed token");
        for (what, part) in [("the payload of a token", signed), ("the signature of a token", signature)] {
            self.add(what, part);
        }
    }

    pub(super) fn search(&self, place: &str, bytes: &[u8]) {
        self.search_but(place, bytes, &[]);
    }

    pub(super) fn search_but(&self, place: &str, bytes: &[u8], but: &[&str]) {
        // All secrets are ASCII, and a text is searched much faster than bytes are by hand.
        let place_text = String::from_utf8_lossy(bytes);
        for (what, text) in self.0.iter().filter(|(what, _)| !but.contains(what)) {
            assert!(text.is_ascii(), "{what} could not be found in a text");
            if let Some(at) = place_text.find(text.as_str()) {
                let before = place_text.floor_char_boundary(at.saturating_sub(120));
                let after = place_text.ceil_char_boundary((at + text.len() + 40).min(place_text.len()));
                panic!("{what} is in {place}: {}", &place_text[before..after]);
            }
        }
    }
}

/// All files in a folder, and in those in it.
pub(super) fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { files(&entry, found) } else { found.push(entry) }
    }
}

/// All records of a store on disk that no process has open, with names for them.
pub(super) async fn records(folder: &Path) -> Vec<(String, Bytes)> {
    let store = open(&format!("disk:{}", folder.display()), StoreOptions::default()).await.unwrap().store;
    let mut found = Vec::new();
    for space in Space::ALL {
        for (key, record) in store.list(space, None, 1000).await.unwrap() {
            found.push((format!("{space:?} {}", key.hex()), record.value));
        }
    }
    found
}
