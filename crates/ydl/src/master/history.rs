//! Writes the history file: one event per line.

use std::{fs::File, io, io::Write};
use ydl_core::HistoryEvent;
use ydl_proto::{files::HISTORY_BYTES_MAX, version::to_json_line};

/// Writer of the history file. Stops after the first error.
#[derive(Debug)]
pub(super) struct HistoryFile {
    file: Option<File>,
    bytes: u64,
}

impl HistoryFile {
    pub(super) fn new(file: Option<File>) -> HistoryFile {
        HistoryFile { file, bytes: 0 }
    }

    pub(super) fn add(&mut self, event: &HistoryEvent) {
        let Some(file) = &mut self.file else {
            return;
        };
        let written = to_json_line(event).map_err(io::Error::from).and_then(|line| {
            self.bytes += line.len() as u64;
            if self.bytes > HISTORY_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            file.write_all(&line)
        });
        if let Err(error) = written {
            tracing::error!("the history file is no longer written: {error}");
            self.file = None;
        }
    }
}
