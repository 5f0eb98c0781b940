//! The operator's page: its files, inside the binary, as they are served.
//!
//! The page is plain ES modules, without a build step. Files refer to each other by relative names, so all of them stand below one
//! folder whose name is a hash of everything: a new version has new names, and browsers may keep the old ones for ever. A caller that serves
//! them asks [`find`] and adds [`HEADERS`] to every answer.

use std::sync::LazyLock;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Headers of every answer of the listener that serves the page.
///
/// Scripts, styles and figures come from the listener alone, no text becomes markup (Trusted Types), no other page may frame this one
/// or keep a handle to its window.
pub(crate) const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// A file as it is served.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Without the slash in front.
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// The hash of the body, in quotes.
    pub(crate) etag: String,
    /// Whether another body never has the same path.
    pub(crate) is_immutable: bool,
}

/// A file as it is in the folder.
struct File {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($name:literal, $content_type:expr) => {
        File { name: $name, content_type: $content_type, bytes: include_bytes!($name) }
    };
}

const DOCUMENT: File = file!("index.html", HTML);

const FILES: &[File] = &[
    file!("app.js", JS),
    file!("api.js", JS),
    file!("base.css", CSS),
    file!("format.js", JS),
    file!("icon.svg", SVG),
    file!("keys.js", JS),
    file!("live.js", JS),
    file!("parts.css", CSS),
    file!("parts/bits.js", JS),
    file!("parts/chart.js", JS),
    file!("parts/dialog.js", JS),
    file!("parts/life-model.js", JS),
    file!("parts/life.js", JS),
    file!("parts/schema-form.js", JS),
    file!("parts/schema.js", JS),
    file!("parts/spark.js", JS),
    file!("parts/table.js", JS),
    file!("route.js", JS),
    file!("store.js", JS),
    file!("theme.js", JS),
    file!("vendor/preact.js", JS),
    file!("vendor/uplot.css", CSS),
    file!("vendor/uplot.js", JS),
    file!("views/audit.js", JS),
    file!("views/backends.js", JS),
    file!("views/calls.js", JS),
    file!("views/config.js", JS),
    file!("views/data.js", JS),
    file!("views/limits.js", JS),
    file!("views/login.js", JS),
    file!("views/nodes.js", JS),
    file!("views/now.js", JS),
    file!("views/session-actions.js", JS),
    file!("views/session-events.js", JS),
    file!("views/session.js", JS),
    file!("views/sessions.js", JS),
    file!("views/try.js", JS),
];

/// The document first, then all else.
static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut whole = Sha256::new();
    for file in FILES {
        whole.update(file.name);
        whole.update(file.bytes);
    }
    let version = hex(&whole.finalize()[..8]);
    let document = String::from_utf8_lossy(DOCUMENT.bytes).replace("{version}", &version);
    let document = asset(String::new(), DOCUMENT.content_type, Bytes::from(document), false);
    let others = FILES.iter().map(|file| {
        let path = format!("assets/{version}/{}", file.name);
        asset(path, file.content_type, Bytes::from_static(file.bytes), true)
    });
    std::iter::once(document).chain(others).collect()
});

fn asset(path: String, content_type: &'static str, body: Bytes, is_immutable: bool) -> Asset {
    let etag = format!("\"{}\"", hex(&Sha256::digest(&body)[..16]));
    Asset { path, content_type, body, etag, is_immutable }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is at a path, with or without the slash in front; the document is at `/` and at `/login`.
///
/// Views have their addresses behind `#`, so no other path is the document.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = if path == "login" { "" } else { path };
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page")
    }

    fn names(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                names(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn the_table_has_every_file_of_the_folder() {
        let mut there = BTreeSet::new();
        names(&folder(), "", &mut there);
        for other in [
            "mod.rs",
            "index.html",
            "jsconfig.json",
            "vendor/HASHES",
            "vendor/LICENSES.md",
            "vendor/preact.d.ts",
        ] {
            assert!(there.remove(other), "{other} is not there");
        }
        let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(listed, there);
        assert_eq!(listed.len(), FILES.len(), "a file is listed twice");
    }

    #[test]
    fn files_of_others_are_as_they_were_published() {
        let hashes = fs::read_to_string(folder().join("vendor/HASHES")).unwrap();
        let vendor = |file: &&File| file.name.starts_with("vendor/");
        let known: BTreeSet<(String, String)> = hashes
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace())
            .map(|mut words| (words.next().unwrap().to_owned(), words.next().unwrap().to_owned()))
            .collect();
        let there = FILES.iter().filter(vendor).map(|file| {
            (hex(&Sha256::digest(file.bytes)), file.name.trim_start_matches("vendor/").to_owned())
        });
        assert_eq!(there.collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn the_document_names_files_that_are_served_and_may_be_kept() {
        let document = find("/").unwrap();
        assert!(!document.is_immutable);
        assert!(std::ptr::eq(document, find("/login").unwrap()));
        let text = String::from_utf8(document.body.to_vec()).unwrap();
        let named: Vec<&str> = text
            .split('"')
            .filter(|word| word.starts_with("/assets/"))
            .inspect(|path| assert!(find(path).is_some_and(|asset| asset.is_immutable), "{path}"))
            .collect();
        assert!(named.iter().any(|path| path.ends_with("/app.js")), "{named:?}");
    }

    #[test]
    fn modules_import_files_that_are_served() {
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            let text = str::from_utf8(file.bytes).unwrap();
            let from = Path::new(file.name).parent().unwrap();
            let imports =
                text.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "));
            for target in imports.filter_map(|line| line.rsplit('\'').nth(1)) {
                let mut path: Vec<&str> = from.iter().map(|part| part.to_str().unwrap()).collect();
                for part in target.split('/') {
                    match part {
                        "." => {}
                        ".." => assert!(path.pop().is_some(), "{}: {target}", file.name),
                        _ => path.push(part),
                    }
                }
                let path = path.join("/");
                assert!(FILES.iter().any(|other| other.name == path), "{} imports {target}", file.name);
            }
        }
    }

    #[test]
    fn nothing_of_ours_needs_what_the_policy_forbids() {
        for file in FILES.iter().filter(|file| !file.name.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(file.bytes);
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function", "document.write"]
            {
                assert!(!text.contains(word), "{} uses {word}", file.name);
            }
            assert!(!file.name.ends_with(".js") || text.starts_with("// @ts-check\n"), "{}", file.name);
            assert!(text.lines().count() <= 800, "{} is too long", file.name);
        }
        let document = String::from_utf8_lossy(DOCUMENT.bytes);
        assert!(!document.contains("<style") && !document.contains("<script>"), "no inline style or script");
    }

    #[test]
    fn nothing_else_is_found() {
        for path in
            ["/index.html", "/assets/app.js", "/assets/0000000000000000/app.js", "/mod.rs", "//", "/sessions"]
        {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
