//! Tests the parser with a table, against the steps of the standard, and with bodies split anywhere.

use proptest::prelude::*;

use super::*;

/// All blocks of a body that comes in these chunks, and the last `retry`.
fn read<'a>(max: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Block>, Option<u64>) {
    let (mut parser, mut blocks) = (Parser::new(max), Vec::new());
    for chunk in chunks {
        let mut chunk = Bytes::copy_from_slice(chunk);
        while let Some(block) = parser.next(&mut chunk) {
            blocks.push(block);
        }
        let held = parser.held_bytes() + parser.name.len();
        assert!(held <= max.max(2 * SHOWN) + NAME_BYTES + 1, "{held} bytes are held");
    }
    (blocks, parser.retry_ms())
}

fn block(name: &str, id: Option<&str>, data: Option<&str>) -> Block {
    let data = data.map_or(Data::None, |data| Data::Whole(Bytes::copy_from_slice(data.as_bytes())));
    Block { name: name.to_owned(), id: id.map(str::to_owned), data }
}

fn message(data: &str) -> Block {
    block("", None, Some(data))
}

#[test]
fn a_body_says_what_the_standard_says_that_it_does() {
    let table: &[(&[u8], &[Block])] = &[
        (b"data: a\n\ndata:b\n\n", &[message("a"), message("b")]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\r\n\n", &[message("a"), message("b"), message("c")]),
        // One leading space is removed, and only one.
        (b"data:  a \n\n", &[message(" a ")]),
        (b"data: a\ndata\ndata:b\n\n", &[message("a\n\nb")]),
        // An empty value is a value; without a field there is no event.
        (b"data\n\ndata:\n\ndata\ndata\n\n", &[message(""), message(""), message("\n")]),
        (b"\n\n: hello\n\nevent: x\n\ndata: a\n\n", &[message("a")]),
        (b"event: x\ndata: a\n\n", &[block("x", None, Some("a"))]),
        (b"event: x\nevent\ndata: a\n\n", &[message("a")]),
        (b"event: x\nevent: y\ndata: a\n\n", &[block("y", None, Some("a"))]),
        (b"id: 1\nid: 2\ndata: a\n\n", &[block("", Some("2"), Some("a"))]),
        (b"id: 1\n\nid\n\n", &[block("", Some("1"), None), block("", Some(""), None)]),
        (b"id: 1\0\ndata: a\n\n", &[message("a")]),
        // Names are compared byte by byte, and unknown fields are ignored.
        (b"Data: a\n data: a\ndata : a\ndatum: a\nno colon\n::\ndata: b\n\n", &[message("b")]),
        (b"\xef\xbb\xbfdata: a\n\n", &[message("a")]),
        (b"\xef\xbb\xbf\ndata: a\n\n", &[message("a")]),
        (b"\xef\xbb\xbf: hello\ndata: a\n\n", &[message("a")]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\ndata: c\n\n", &[message("a"), message("c")]),
        (b"data: a\xff\xc3\n\n", &[message("a\u{fffd}\u{fffd}")]),
        // Without an empty line at the end there is no event.
        (b"data: a\n\nid: 1\ndata: b\n", &[message("a")]),
        (b"data: a\n\ndata: b", &[message("a")]),
        (b"", &[]),
    ];
    for (body, expected) in table {
        let text = String::from_utf8_lossy(body);
        for size in 1..=body.len().max(1) {
            assert_eq!(read(1000, body.chunks(size)).0, *expected, "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn only_digits_say_how_long_to_wait() {
    for (body, expected) in [
        ("retry: 10\n", Some(10)),
        ("retry:10\nretry: 20\n\n", Some(20)),
        ("retry: 10\nretry: soon\nretry:\nretry\nretry: -1\nretry: 1.5\nretry:  7\n", Some(10)),
        ("retry: 99999999999999999999999\n", Some(u64::MAX)),
        ("retry: 10", None),
    ] {
        assert_eq!(read(1000, [body.as_bytes()]), (Vec::new(), expected), "{body:?}");
    }
}

#[test]
fn an_event_that_is_too_long_is_left_out_and_the_next_is_whole() {
    for end in ["\n", "\r\n", "\r"] {
        let long = "x".repeat(1000);
        let text = format!(
            "id: 7\ndata: <{long}>\nevent: other\n\ndata: 2\n\nevent: {long}\ndata: <>\n\ndata: 3\n\n"
        );
        let text = text.replace('\n', end);
        let (start, rest) = (format!("<{}", "x".repeat(SHOWN - 1)), format!("{}>", "x".repeat(SHOWN - 1)));
        let cut = |start: String, end: String| Data::TooLong { start: start.into(), end: end.into() };
        let expected = [
            Block { name: String::new(), id: Some("7".to_owned()), data: cut(start, rest) },
            message("2"),
            Block { data: cut("<>".to_owned(), "<>".to_owned()), ..Block::default() },
            message("3"),
        ];
        for size in 1..=text.len() {
            assert_eq!(read(32, text.as_bytes().chunks(size)).0, expected, "in pieces of {size}");
        }
    }
}

#[test]
fn what_is_no_field_of_an_event_may_be_as_long_as_it_likes() {
    let long = "x".repeat(1000);
    let text = format!("data: 1\n: {long}\n{long}: {long}\n{long}\ndata: 2\n\n");
    for size in 1..=text.len() {
        assert_eq!(read(32, text.as_bytes().chunks(size)).0, [message("1\n2")], "in pieces of {size}");
    }
}

/// A reference parser: the steps of the standard, line by line, on a complete body.
fn reference(body: &[u8]) -> (Vec<Block>, Option<u64>) {
    let text = String::from_utf8_lossy(body);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut blocks, mut retry) = (Vec::new(), None);
    let (mut name, mut id, mut data) = (String::new(), None, String::new());
    let mut lines: Vec<_> = text.split('\n').collect();
    // The text after the last line break is not a line.
    lines.pop();
    for line in lines {
        if line.is_empty() {
            let data = std::mem::take(&mut data);
            let (name, id) = (std::mem::take(&mut name), id.take());
            if !data.is_empty() || id.is_some() {
                blocks.push(block(&name, id.as_deref(), data.strip_suffix('\n')));
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data = format!("{data}{value}\n"),
            "id" if !value.contains('\0') => id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                retry = Some(value.parse().unwrap());
            }
            _ => {}
        }
    }
    (blocks, retry)
}

/// Bodies made of the tokens that the parser treats specially.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"data",
        b"event",
        b"id",
        b"retry",
        b"x",
        b"7",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\n\n",
        b"\r\n",
        b"\0",
        b"\xff",
        "é".as_bytes(),
        BYTE_ORDER_MARK,
        b"data: a\n",
        b"id: 1\n",
    ];
    let word = prop::sample::select(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

/// A body split into chunks at these places.
fn cut<'a>(body: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place.index(body.len() + 1)).collect();
    places.extend([0, body.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn a_body_means_the_same_however_it_is_cut(body in bodies(), places in prop::collection::vec(any::<prop::sample::Index>(), 0..10)) {
        prop_assert_eq!(read(1000, cut(&body, &places)), reference(&body));
    }

    #[test]
    fn what_is_too_long_does_not_depend_on_how_it_is_cut(body in bodies(), max in 0..40_usize, places in prop::collection::vec(any::<prop::sample::Index>(), 0..10)) {
        prop_assert_eq!(read(max, cut(&body, &places)), read(max, [&body[..]]));
    }

    #[test]
    fn any_bytes_are_read(body in prop::collection::vec(any::<u8>(), 0..200)) {
        read(20, [&body[..]]);
    }
}
