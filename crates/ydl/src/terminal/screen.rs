//! Terminal with scrolling lines above a table that is redrawn in place.

use super::paint::terminal_is_dumb;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};

/// Terminal with a table at its bottom.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    /// Number of lines of the table on the screen.
    drawn: usize,
}

impl Screen {
    /// Returns a screen if stdout and stderr are a terminal that can be redrawn.
    pub(crate) fn open() -> Option<Screen> {
        let both = io::stdout().is_terminal() && io::stderr().is_terminal();
        (both && !terminal_is_dumb()).then(Screen::default)
    }

    /// Returns the number of columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Prints lines above the table and redraws the table, in one write to avoid flickering.
    pub(crate) fn show(&mut self, scrolled: &[u8], table: &[String]) -> io::Result<()> {
        let mut frame = self.erased();
        frame.extend_from_slice(scrolled);
        if !scrolled.is_empty() && !scrolled.ends_with(b"\n") {
            frame.push(b'\n');
        }
        for line in table {
            frame.extend_from_slice(line.as_bytes());
            // Erases the rest of a longer line.
            frame.extend_from_slice(b"\x1b[K\n");
        }
        self.drawn = table.len();
        let mut out = io::stdout().lock();
        out.write_all(&frame)?;
        out.flush()
    }

    /// Removes the table.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.show(b"", &[])
    }

    fn erased(&self) -> Vec<u8> {
        match self.drawn {
            0 => Vec::new(),
            n => format!("\x1b[{n}A\r\x1b[J").into_bytes(),
        }
    }
}
