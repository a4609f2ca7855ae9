//! Lines that scroll, above a table that is redrawn in place.

use super::paint::terminal_is_dumb;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};

/// A terminal with a table at its bottom.
#[derive(Debug, Default)]
pub struct Screen {
    /// Lines of the table that stand below the last scrolled line.
    drawn: usize,
}

impl Screen {
    /// A screen, where there is a terminal that can be redrawn.
    pub fn open() -> Option<Screen> {
        let both = io::stdout().is_terminal() && io::stderr().is_terminal();
        (both && !terminal_is_dumb()).then(Screen::default)
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Scrolls whole lines and draws the table anew, in one write, so that nothing flickers or mixes.
    pub fn show(&mut self, scrolled: &[u8], table: &[String]) -> io::Result<()> {
        let mut frame = self.erased();
        frame.extend_from_slice(scrolled);
        if !scrolled.is_empty() && !scrolled.ends_with(b"\n") {
            frame.push(b'\n');
        }
        for line in table {
            frame.extend_from_slice(line.as_bytes());
            // What a longer line has left there.
            frame.extend_from_slice(b"\x1b[K\n");
        }
        self.drawn = table.len();
        let mut out = io::stdout().lock();
        out.write_all(&frame)?;
        out.flush()
    }

    /// Leaves the terminal as it was, without the table.
    pub fn close(&mut self) -> io::Result<()> {
        self.show(b"", &[])
    }

    fn erased(&self) -> Vec<u8> {
        match self.drawn {
            0 => Vec::new(),
            n => format!("\x1b[{n}A\r\x1b[J").into_bytes(),
        }
    }
}
