//! Prefixes complete lines with the name of the task that printed them.

/// Maximum length of a line; longer ones are split, which bounds the memory.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Splits the output of one stream of a task into lines with the task's name as prefix: `worker:0 | …`.
///
/// The bytes of a line are not changed and need not be UTF-8.
#[derive(Clone, Debug)]
pub(crate) struct LinePrefixer {
    label: Vec<u8>,
    partial: Vec<u8>,
    /// True if `partial` continues a line whose beginning was already emitted.
    is_continued: bool,
}

impl LinePrefixer {
    /// Creates a prefixer. The caller pads or colours `label`.
    pub(crate) fn new(label: impl Into<Vec<u8>>) -> LinePrefixer {
        LinePrefixer { label: label.into(), partial: Vec::new(), is_continued: false }
    }

    /// Appends to `out` the lines that `chunk` completes, and buffers the rest.
    pub(crate) fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let (mut text, is_complete) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            loop {
                let space = LINE_BYTES_MAX - self.partial.len();
                if text.len() <= space {
                    break;
                }
                let (head, tail) = text.split_at(space);
                self.partial.extend_from_slice(head);
                self.emit(out);
                self.is_continued = true;
                text = tail;
            }
            self.partial.extend_from_slice(text);
            if is_complete {
                self.emit(out);
                self.is_continued = false;
            }
        }
    }

    /// Appends the last line if it has no line end.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.emit(out);
        }
        self.is_continued = false;
    }

    /// Appends the buffered line. The continuation of a split line is marked by `+` instead of `|`.
    fn emit(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.label);
        out.extend_from_slice(if self.is_continued { b" + " } else { b" | " });
        out.append(&mut self.partial);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_printed() {
        let mut lines = LinePrefixer::new("worker:0");
        let mut out = Vec::new();
        lines.push(b"one\ntw", &mut out);
        assert_eq!(out, b"worker:0 | one\n");
        lines.push(b"o\n\n\xff\xfe\n", &mut out);
        assert_eq!(out, b"worker:0 | one\nworker:0 | two\nworker:0 | \nworker:0 | \xff\xfe\n");
    }

    #[test]
    fn the_last_line_needs_no_line_end() {
        let mut lines = LinePrefixer::new("ps:1");
        let mut out = Vec::new();
        lines.push(b"half", &mut out);
        assert!(out.is_empty());
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, b"ps:1 | half\n");
    }

    #[test]
    fn a_huge_line_is_cut_into_marked_pieces() {
        let mut lines = LinePrefixer::new("w");
        let mut out = Vec::new();
        let huge = vec![b'x'; 2 * LINE_BYTES_MAX];
        lines.push(&huge[..10], &mut out);
        lines.push(&huge[10..], &mut out);
        lines.push(b"end\nnext\n", &mut out);
        let shown: Vec<(usize, &[u8])> = out
            .split(|&byte| byte == b'\n')
            .map(|line| (line.len(), &line[..line.len().min(4)]))
            .collect();
        let full = LINE_BYTES_MAX + 4;
        assert_eq!(
            shown,
            [(full, &b"w | "[..]), (full, b"w + "), (7, b"w + "), (8, b"w | "), (0, b"")]
        );
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_piece() {
        let mut lines = LinePrefixer::new("w");
        let mut out = Vec::new();
        let mut line = vec![b'x'; LINE_BYTES_MAX];
        line.push(b'\n');
        lines.push(&line, &mut out);
        assert_eq!(out.len(), line.len() + 4);
    }
}
