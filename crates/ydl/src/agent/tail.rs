//! The last lines of a stream, in bounded memory.

use std::collections::VecDeque;

const BYTES_MAX: usize = 4096;
const LINES_MAX: usize = 20;

/// What a person wants to see of a program that failed: the end of what it said.
#[derive(Clone, Debug, Default)]
pub struct LineTail {
    last: VecDeque<u8>,
    /// Something before `last` is forgotten, so its first line may lack its beginning.
    cut: bool,
}

impl LineTail {
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(BYTES_MAX)..];
        let surplus = (self.last.len() + kept.len()).saturating_sub(BYTES_MAX);
        self.cut |= surplus > 0 || kept.len() < bytes.len();
        self.last.drain(..surplus);
        self.last.extend(kept);
    }

    /// At most 20 whole lines; if a single one is longer than all that is kept, its end.
    pub fn text(&self) -> String {
        let (front, back) = self.last.as_slices();
        let bytes = [front, back].concat();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(as_shown).collect();
        let whole = usize::from(self.cut && lines.len() > 1);
        let from = lines.len().saturating_sub(LINES_MAX).max(whole);
        let mut shown = lines[from..].join("\n");
        // What is no text grows when it is replaced by signs that say so.
        shown.drain(..shown.ceil_char_boundary(shown.len().saturating_sub(BYTES_MAX)));
        shown
    }
}

/// A progress bar returns to the line's beginning and writes over it: only what it wrote last counts.
fn as_shown(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rfind('\r').map_or(line, |at| &line[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(pieces: &[&[u8]]) -> String {
        let mut tail = LineTail::default();
        for piece in pieces {
            tail.push(piece);
        }
        tail.text()
    }

    #[test]
    fn the_last_twenty_lines_are_kept() {
        let all: Vec<String> = (0..30).map(|line| format!("line {line}\n")).collect();
        let pieces: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
        let text = tail(&pieces);
        assert!(text.starts_with("line 10\n"), "{text}");
        assert!(text.ends_with("line 29"), "{text}");
    }

    #[test]
    fn of_one_endless_line_the_end_is_kept() {
        let huge = vec![b'x'; 100_000];
        assert_eq!(tail(&[&huge, b"end"]).len(), BYTES_MAX);
        assert_eq!(tail(&[&huge, b"\nend\n"]), "end");
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        assert_eq!(tail(&[b"\xff\xfe ok\n"]), "\u{fffd}\u{fffd} ok");
        assert_eq!(tail(&[]), "");
        assert!(tail(&[&[0xff; 9000]]).len() <= BYTES_MAX);
    }

    #[test]
    fn a_progress_bar_is_shown_as_a_terminal_shows_it() {
        assert_eq!(tail(&[b"10%\r50%\r100%\ndone\r\n"]), "100%\ndone");
    }
}
