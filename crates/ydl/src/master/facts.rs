//! Writes the history file: one event per line.

use std::{fs::File, io, io::Write};
use ydl_core::HistoryEvent;
use ydl_proto::files::EVENTS_BYTES_MAX;

/// Writer of the history file. Stops after the first error.
#[derive(Debug)]
pub(super) struct Facts {
    file: Option<File>,
    bytes: u64,
}

impl Facts {
    pub(super) fn new(file: Option<File>) -> Facts {
        Facts { file, bytes: 0 }
    }

    pub(super) fn add(&mut self, fact: &HistoryEvent) {
        let Some(file) = &mut self.file else {
            return;
        };
        let written = serde_json::to_vec(fact).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.bytes += line.len() as u64;
            if self.bytes > EVENTS_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            file.write_all(&line)
        });
        if let Err(error) = written {
            tracing::error!("facts are no longer written down: {error}");
            self.file = None;
        }
    }
}
