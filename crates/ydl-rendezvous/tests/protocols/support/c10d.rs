//! Commands of PyTorch's store as torch encodes them, and readable responses.

use ydl_rendezvous::{Action, LinkId};

use super::{hex, link};

/// Numbering of a client's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestDialect {
    /// torch 2.2 and later.
    New,
    /// torch 2.1.
    Torch21,
    /// torch 2.0 and earlier.
    Torch20,
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn list(words: &[&str]) -> Vec<u8> {
    let mut bytes = (words.len() as u64).to_le_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| text(word)));
    bytes
}

/// Encodes a command given as text: `set key value`. `''` is an empty argument.
pub fn command(dialect: TestDialect, words: &str) -> Vec<u8> {
    let words: Vec<&str> =
        words.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect();
    let (name, words) = words.split_first().expect("a command has a name");
    let number = |index: usize| -> i64 { words[index].parse().expect("a number") };
    let (new, arguments) = match *name {
        "validate" => (0, 0x3c85_f7ce_u32.to_le_bytes().to_vec()),
        "set" => (1, [text(words[0]), text(words[1])].concat()),
        "compare_set" => (2, [text(words[0]), text(words[1]), text(words[2])].concat()),
        "get" => (3, text(words[0])),
        "add" => (4, [text(words[0]), number(1).to_le_bytes().to_vec()].concat()),
        "check" => (5, list(words)),
        "wait" => (6, list(words)),
        "count" => (7, Vec::new()),
        "delete" => (8, text(words[0])),
        "append" => (9, [text(words[0]), text(words[1])].concat()),
        "multi_get" => (10, list(words)),
        "multi_set" => {
            let pairs = (words.len() as u64 / 2).to_le_bytes().to_vec();
            (11, [pairs, words.iter().flat_map(|word| text(word)).collect()].concat())
        }
        "cancel" => (12, Vec::new()),
        "ping" => (13, (number(0) as u32).to_le_bytes().to_vec()),
        "push" => (14, [text(words[0]), text(words[1])].concat()),
        "pop" => (15, text(words[0])),
        "length" => (16, text(words[0])),
        "list" => (17, Vec::new()),
        "barrier" => (18, [text(words[0]), number(1).to_le_bytes().to_vec()].concat()),
        "watch" => (255, text(words[0])),
        other => panic!("unknown command `{other}`"),
    };
    let number = match (dialect, *name) {
        (TestDialect::Torch20, "watch") => 7,
        (TestDialect::Torch20, "delete") => 8,
        (TestDialect::New, _) => new,
        (TestDialect::Torch21 | TestDialect::Torch20, _) => new - 1,
    };
    [vec![number], arguments].concat()
}

/// Formats a response.
pub fn format_response(bytes: &[u8]) -> String {
    match bytes {
        [byte] => format!("{byte}"),
        number if number.len() == 8 => {
            format!("i64 {}", i64::from_le_bytes(number.try_into().expect("eight")))
        }
        [length, _, _, _, _, _, _, _, rest @ ..] if usize::from(*length) == rest.len() => {
            format!("`{}`", String::from_utf8_lossy(rest))
        }
        other => hex(other),
    }
}

/// Formats actions, one per line: `2 < 0`.
pub fn format_actions(actions: &[Action]) -> String {
    let number = |of: &LinkId| (1..100).find(|number| link(*number) == *of).unwrap_or(0);
    actions
        .iter()
        .map(|action| match action {
            Action::Send(link, bytes) => format!("{} < {}\n", number(link), format_response(bytes)),
            Action::Close(link) => format!("{} closed\n", number(link)),
            Action::Log(line) => format!("{line}\n"),
            Action::Dial(..) => "dialed\n".to_owned(),
        })
        .collect()
}
