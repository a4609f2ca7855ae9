//! Last lines of a stream, in bounded memory.

use std::collections::VecDeque;

const BYTES_MAX: usize = 4096;
const LINES_MAX: usize = 20;

/// End of a failed program's output, for error messages.
#[derive(Clone, Debug, Default)]
pub(super) struct LineTail {
    last: VecDeque<u8>,
    /// Set if bytes before `last` were dropped, so its first line may be incomplete.
    cut: bool,
}

impl LineTail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = &bytes[bytes.len().saturating_sub(BYTES_MAX)..];
        let surplus = (self.last.len() + end.len()).saturating_sub(BYTES_MAX);
        self.cut |= surplus > 0 || end.len() < bytes.len();
        self.last.drain(..surplus);
        self.last.extend(end);
    }

    /// Returns at most 20 complete lines; of a single longer line, its end.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.last.as_slices();
        let bytes = [front, back].concat();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(as_shown).collect();
        let whole = usize::from(self.cut && lines.len() > 1);
        let from = lines.len().saturating_sub(LINES_MAX).max(whole);
        let mut text = lines[from..].join("\n");
        // Replacement characters for invalid bytes increase the length.
        text.drain(..text.ceil_char_boundary(text.len().saturating_sub(BYTES_MAX)));
        text
    }
}

/// Returns the visible part of a line: a progress bar overwrites it after each carriage return.
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
    fn the_end_of_an_endless_line_is_kept() {
        let huge = vec![b'x'; 100_000];
        assert_eq!(tail(&[&huge, b"end"]).len(), BYTES_MAX);
        assert_eq!(tail(&[&huge, b"\nend\n"]), "end");
    }

    #[test]
    fn invalid_utf8_is_replaced_within_the_limit() {
        assert_eq!(tail(&[b"\xff\xfe ok\n"]), "\u{fffd}\u{fffd} ok");
        assert_eq!(tail(&[]), "");
        assert!(tail(&[&[0xff; 9000]]).len() <= BYTES_MAX);
    }

    #[test]
    fn a_progress_bar_is_shown_as_a_terminal_shows_it() {
        assert_eq!(tail(&[b"10%\r50%\r100%\ndone\r\n"]), "100%\ndone");
    }
}
