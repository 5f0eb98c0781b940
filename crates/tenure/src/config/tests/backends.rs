//! Several servers behind: `[[backend]]` tables.

use std::time::Duration;

use expect_test::expect;

use super::super::Config;
use super::{fails, file, load};

const TWO: &str = r#"
[child]
warm = 3
env = ["A=env:OF_THE_PROCESS"]

[[backend]]
name = "files"
command = ["files", "/srv"]
grace = "5s"

[upstream]
connect_timeout = "1s"

[[backend]]
name = "search-2"
prefix = ""
url = "https://mcp.example.com/mcp"
headers = ["X: env:Y"]
"#;

#[test]
fn each_has_its_own_and_the_rest_from_the_sections() {
    let backends = load(&file(TWO)).backends;
    let [files, search] = &backends[..] else { panic!("{backends:?}") };
    assert_eq!((&*files.name, &*files.prefix), ("files", "files"));
    assert_eq!(files.child.command, ["files", "/srv"]);
    assert_eq!((files.child.warm, files.child.grace), (3, Duration::from_secs(5)));
    assert_eq!(files.child.env, ["A=env:OF_THE_PROCESS"]);
    assert_eq!((&*search.name, &*search.prefix), ("search-2", ""));
    assert_eq!(search.upstream.url.as_deref(), Some("https://mcp.example.com/mcp"));
    assert_eq!(search.upstream.connect_timeout, Duration::from_secs(1));
    assert!(search.child.command.is_empty() && files.upstream.url.is_none());
}

#[test]
fn what_is_shown_loads_to_the_same() {
    let shown = Config::show(&file(TWO)).unwrap();
    assert!(shown.contains("warm = 3                                 # as in [child]"), "{shown}");
    assert_eq!(load(&file(&shown)).backends, load(&file(TWO)).backends);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    fails(
        &file(
            r#"
[[backend]]
command = ["a"]

[[backend]]
name = "Big"
command = ["a"]

[[backend]]
name = "both"
command = ["a"]
url = "https://mcp.example.com/mcp"

[[backend]]
name = "fine"
command = ["a"]

[[backend]]
name = "fine"
comand = ["a"]
warm = "many"

[[backend]]
name = "other"
prefix = "fine"
url = "https://mcp.example.com/mcp"

[[backend]]
name = "sse"
prefix = "a_b"
command = ["a"]
"#,
        ),
        &expect![[r#"
            error: the configuration has 11 problems
              tenure.toml:2: the `[[backend]]` has no `name`
                hint: give it one: its endpoint is `/mcp/NAME`
              tenure.toml:6: `name` is "Big", expected small letters, digits and dashes, and not "sse", 32 at most
              tenure.toml:9: the backend `both` needs either `command` or `url`
                hint: `command` runs a program, `url` names a server elsewhere
              tenure.toml:20: unknown key `comand` in a `[[backend]]`
                hint: did you mean `command`?
              tenure.toml:21: `warm` is "many", expected a whole number from 0 to 100000000
              tenure.toml:18: the backend `fine` needs either `command` or `url`
                hint: `command` runs a program, `url` names a server elsewhere
              tenure.toml:18: there is another backend `fine`
                hint: names must differ
              tenure.toml:18: the backend `fine` has the prefix "fine", as another one has
                hint: prefixes must differ, because they say which server a tool belongs to
              tenure.toml:23: the backend `other` has the prefix "fine", as another one has
                hint: prefixes must differ, because they say which server a tool belongs to
              tenure.toml:29: `name` is "sse", expected small letters, digits and dashes, and not "sse", 32 at most
              tenure.toml:30: `prefix` is "a_b", expected letters, digits and dashes, or "", 32 at most
        "#]],
    );
    fails(
        &file("[child]\ncommand = [\"a\"]\n[[backend]]\nname = \"b\"\ncommand = [\"b\"]\n"),
        &expect![[r#"
            error: tenure.toml:3: there is a `[[backend]]` beside `child.command` or `upstream.url`

            hint: write the one server as a `[[backend]]` too
        "#]],
    );
    fails(
        &file("[backend]\nname = \"a\"\n"),
        &expect![[r#"
        error: tenure.toml:2: `backend` is a list of tables

        hint: write `[[backend]]` and its keys below
    "#]],
    );
    fails(
        &file("backend = 1\n"),
        &expect![[r#"
        error: tenure.toml:1: `backend` is a list of tables

        hint: write `[[backend]]` and its keys below
    "#]],
    );
}
