//! Prints a followed job: output of its tasks, events, and a live table.

use super::log_tails::{Prefix, StreamId};
use crate::{
    cli::GlobalArgs,
    terminal::{self, Paint, Screen, clean},
};
use std::{
    io::{self, Write},
    time::{Duration, Instant},
};
use ydl_core::{HistoryEvent, Outcome, history::Disposition, history::HistoryKind};
use ydl_os::{reason, report::Report};
use ydl_proto::messages::JobSnapshot;

/// Size of the output buffer.
const PENDING_BYTES: usize = 256 << 10;
/// Minimum interval between two drawings of the table.
const FRAME: Duration = Duration::from_millis(100);

/// Error: stdout is closed.
#[derive(Debug)]
pub(crate) struct OutputClosed;

#[derive(Debug)]
pub(crate) struct Renderer {
    id: String,
    /// Colours on stderr.
    paint: Paint,
    mode: RenderMode,
    /// Buffered output.
    pending: Vec<u8>,
    /// Write error on stdout other than a closed pipe.
    write_error: Option<io::Error>,
}

#[derive(Debug)]
enum RenderMode {
    /// A table that is redrawn, and lines above it.
    Live {
        screen: Screen,
        paint: Paint,
        snapshot: Option<Box<JobSnapshot>>,
        drawn: Option<Instant>,
    },
    /// Output on stdout, events on stderr.
    Plain,
    /// Everything on stdout, one JSON object per line.
    Json,
    /// Output of tasks only.
    Output,
}

impl Renderer {
    /// Creates a renderer for a followed job.
    pub(crate) fn following(id: &str, global: GlobalArgs) -> Renderer {
        let mode = if global.json {
            RenderMode::Json
        } else if let Some(screen) = Screen::open() {
            let paint = Paint::of(global.use_color(), &io::stdout());
            RenderMode::Live { screen, paint, snapshot: None, drawn: None }
        } else {
            RenderMode::Plain
        };
        Renderer::new(id, global, mode)
    }

    /// Creates a renderer for task output alone.
    pub(crate) fn output_only(id: &str, global: GlobalArgs) -> Renderer {
        let mode = if global.json { RenderMode::Json } else { RenderMode::Output };
        Renderer::new(id, global, mode)
    }

    fn new(id: &str, global: GlobalArgs, mode: RenderMode) -> Renderer {
        let paint = Paint::of(global.use_color(), &io::stderr());
        Renderer { id: id.to_owned(), paint, mode, pending: Vec::new(), write_error: None }
    }

    /// Returns whether a live table is shown, which needs snapshots of the job.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.mode, RenderMode::Live { .. })
    }

    /// Returns the prefix of output lines.
    pub(crate) fn prefix(&self, global: GlobalArgs) -> Prefix {
        match self.mode {
            RenderMode::Json => Prefix::Lines,
            RenderMode::Live { .. } | RenderMode::Plain | RenderMode::Output => {
                Prefix::Task(Paint::of(global.use_color(), &io::stdout()))
            }
        }
    }

    /// Buffers whole lines of a task's output until [`Renderer::flush`].
    pub(crate) fn output(&mut self, from: &StreamId, lines: &[u8]) -> Result<(), OutputClosed> {
        match self.mode {
            RenderMode::Live { .. } | RenderMode::Plain | RenderMode::Output => {
                self.pending.extend_from_slice(lines)
            }
            RenderMode::Json => self.pending.extend(json_lines(from, lines)),
        }
        if self.pending.len() > PENDING_BYTES {
            return self.flush();
        }
        Ok(())
    }

    /// Writes the buffered output.
    pub(crate) fn flush(&mut self) -> Result<(), OutputClosed> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.pending);
        let written = match &mut self.mode {
            RenderMode::Live { screen, paint, snapshot, drawn } => {
                *drawn = Some(Instant::now());
                let table = table(&self.id, screen, *paint, snapshot);
                screen.show(&lines, &table)
            }
            RenderMode::Plain | RenderMode::Output | RenderMode::Json => write(&lines),
        };
        self.check_written(written)
    }

    /// Prints an event. On a terminal the table shows ordinary events, so only notable ones get a line.
    pub(crate) fn event(&mut self, event: &HistoryEvent) -> Result<(), OutputClosed> {
        let text = match &event.kind {
            // The command ends with the cause.
            HistoryKind::JobEnding { outcome: Outcome::Failed(_) } => {
                "the job is ending: failed".to_owned()
            }
            kind => clean(&kind.to_string()),
        };
        match &mut self.mode {
            RenderMode::Output => Ok(()),
            RenderMode::Plain if matches!(event.kind, HistoryKind::JobFinished { .. }) => Ok(()),
            RenderMode::Plain => {
                terminal::message(self.paint.dim(&text));
                Ok(())
            }
            RenderMode::Live { screen, paint, snapshot, .. } if is_notable(&event.kind) => {
                let line = format!("{}\n", paint.dim(&text));
                let table = table(&self.id, screen, *paint, snapshot);
                let written = screen.show(line.as_bytes(), &table);
                self.check_written(written)
            }
            RenderMode::Live { .. } => Ok(()),
            RenderMode::Json => self.object(&serde_json::json!({ "event": event })),
        }
    }

    /// Prints a JSON object; does nothing in other modes.
    pub(crate) fn object(&mut self, value: &serde_json::Value) -> Result<(), OutputClosed> {
        if !matches!(self.mode, RenderMode::Json) {
            return Ok(());
        }
        let written = write(format!("{value}\n").as_bytes());
        self.check_written(written)
    }

    /// Shows a new snapshot of the job.
    pub(crate) fn update(&mut self, new: Box<JobSnapshot>) -> Result<(), OutputClosed> {
        if let RenderMode::Live { snapshot, .. } = &mut self.mode {
            *snapshot = Some(new);
        }
        self.redraw()
    }

    /// Draws the table again unless the last drawing is more recent than [`FRAME`].
    pub(crate) fn redraw(&mut self) -> Result<(), OutputClosed> {
        let RenderMode::Live { screen, paint, snapshot, drawn } = &mut self.mode else {
            return Ok(());
        };
        if drawn.is_some_and(|at| at.elapsed() < FRAME) {
            return Ok(());
        }
        *drawn = Some(Instant::now());
        let table = table(&self.id, screen, *paint, snapshot);
        let written = screen.show(b"", &table);
        self.check_written(written)
    }

    /// Prints a note to the user.
    pub(crate) fn note(&mut self, text: &str) {
        match &mut self.mode {
            RenderMode::Live { screen, paint, snapshot, .. } => {
                let table = table(&self.id, screen, *paint, snapshot);
                // A closed terminal shows no note.
                let _ = screen.show(format!("{text}\n").as_bytes(), &table);
            }
            RenderMode::Plain | RenderMode::Json | RenderMode::Output => terminal::message(text),
        }
    }

    /// Removes the table.
    pub(crate) fn close(&mut self) {
        if let RenderMode::Live { screen, .. } = &mut self.mode {
            let _ = screen.close();
        }
    }

    /// Returns the error that stopped output to stdout.
    pub(crate) fn error(&self) -> Option<Report> {
        let error = self.write_error.as_ref()?;
        Some(Report::internal(format!("cannot write to stdout: {}", reason(error))))
    }

    fn check_written(&mut self, written: io::Result<()>) -> Result<(), OutputClosed> {
        written.map_err(|error| {
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.write_error = Some(error);
            }
            OutputClosed
        })
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn table(
    id: &str,
    screen: &Screen,
    paint: Paint,
    snapshot: &mut Option<Box<JobSnapshot>>,
) -> Vec<String> {
    let (width, height) = screen.size();
    let Some(snapshot) = snapshot else {
        return Vec::new();
    };
    // Times in the view advance with the clock until the next view arrives.
    snapshot.view.now = snapshot.view.now.max(terminal::now());
    terminal::live_table(id, snapshot, paint, width.saturating_sub(1), height / 2)
}

/// Returns whether an event gets a line above the table.
fn is_notable(kind: &HistoryKind) -> bool {
    match kind {
        HistoryKind::AttemptEnded { disposition, .. } => {
            !matches!(disposition, Disposition::Done | Disposition::NoAction)
        }
        HistoryKind::RoundRestarted { .. }
        | HistoryKind::MembersChanged { .. }
        | HistoryKind::GangReleased { .. }
        | HistoryKind::NodeExcluded { .. }
        | HistoryKind::NodeReadmitted { .. }
        | HistoryKind::MemoryIncreased { .. }
        | HistoryKind::RoleScaled { .. }
        | HistoryKind::RolloutStarted { .. }
        | HistoryKind::RolloutEnded { .. }
        | HistoryKind::MasterRecovered { .. }
        | HistoryKind::CauseFound { .. } => true,
        HistoryKind::JobStarted
        | HistoryKind::RoundStarted { .. }
        | HistoryKind::AttemptStarted { .. }
        | HistoryKind::AttemptStopped { .. }
        | HistoryKind::ReplicaDraining { .. }
        | HistoryKind::JobEnding { .. }
        | HistoryKind::JobFinished { .. } => false,
    }
}

/// Formats lines of output as JSON objects.
fn json_lines(from: &StreamId, lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        // A prefixer without a name still prints ` | `, or ` + ` for the continuation of a long line.
        let line = line.get(3..).unwrap_or_default();
        let object = serde_json::json!({ "output": {
            "task": from.task,
            "attempt": from.attempt,
            "stream": from.stream.name(),
            "line": String::from_utf8_lossy(line),
        }});
        out.extend_from_slice(object.to_string().as_bytes());
        out.push(b'\n');
    }
    out
}
