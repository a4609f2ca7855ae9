//! Printing: data on stdout, everything else on stderr.

use serde::Serialize;
use std::{
    io::{self, Write},
    process,
};
use ydl_os::{reason, report::Report};

/// Prints data. A closed pipe, as in `ydl logs | head`, ends the process quietly.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<(), Report> {
    let mut out = io::stdout().lock();
    match out.write_all(data.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            let what = format!("cannot write to stdout: {}", reason(&error));
            Err(Report::internal(what))
        }
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Report> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Report::internal(format!("cannot write JSON: {error}")))?;
    line.push(b'\n');
    print(line)
}

/// Prints a message to stderr and ignores write errors.
pub(crate) fn message(text: impl AsRef<str>) {
    let line = format!("{}\n", text.as_ref());
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
