//! Upload progress.

use super::{format::counted_bytes, print::message};
use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Upload progress: the last line of a terminal, or otherwise a line every [`ProgressBar::MESSAGE_INTERVAL`].
#[derive(Debug)]
pub(crate) struct ProgressBar {
    on: bool,
    drawn: bool,
    last_message: Instant,
}

impl ProgressBar {
    const WIDTH: u64 = 30;
    const MESSAGE_INTERVAL: Duration = Duration::from_secs(10);

    /// Creates a bar that is not drawn yet.
    pub(crate) fn new() -> ProgressBar {
        ProgressBar { on: io::stderr().is_terminal(), drawn: false, last_message: Instant::now() }
    }

    /// Draws the bar, or prints a line at intervals if stderr is not a terminal.
    pub(crate) fn draw(&mut self, sent: u64, total: u64) {
        if total == 0 {
            return;
        }
        let sent = sent.min(total);
        if !self.on {
            if self.last_message.elapsed() > ProgressBar::MESSAGE_INTERVAL {
                self.last_message = Instant::now();
                let (sent, total) = (counted_bytes(sent), counted_bytes(total));
                message(format!("uploading: {sent} of {total}"));
            }
            return;
        }
        self.drawn = true;
        let full = (sent.saturating_mul(ProgressBar::WIDTH) / total) as usize;
        let rest = ProgressBar::WIDTH as usize - full;
        let text = format!(
            "\r\x1b[Kuploading [{}{}] {} of {}",
            "#".repeat(full),
            " ".repeat(rest),
            counted_bytes(sent),
            counted_bytes(total)
        );
        // A closed terminal shows no bar.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Removes the bar.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}
