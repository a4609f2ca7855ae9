//! Signals that interrupt a command.

use tokio::signal::unix::{Signal, SignalKind, signal};
use ydl_os::{reason, report::Report};

/// Receiver of termination signals. While it exists, they do not end this process.
#[derive(Debug)]
pub(crate) struct InterruptSignals {
    interrupts: Signal,
    terminations: Signal,
}

impl InterruptSignals {
    pub(crate) fn listen() -> Result<InterruptSignals, Report> {
        Ok(InterruptSignals {
            interrupts: listen(SignalKind::interrupt())?,
            terminations: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupts.recv() => "Ctrl-C",
            _ = self.terminations.recv() => "SIGTERM",
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Report> {
    signal(kind)
        .map_err(|error| Report::internal(format!("cannot listen to signals: {}", reason(&error))))
}
