//! Colours for terminals.

use std::io::IsTerminal;
use ydl_core::{TaskId, view::TaskState};
use ydl_os::env;

/// Colours, enabled or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

/// Colours that distinguish tasks. Red and green mark failure and success.
const TASKS: [&str; 5] = ["36", "33", "35", "34", "96"];

impl Paint {
    /// Creates the colours for a stream. By default they are enabled for a terminal unless `NO_COLOR` is set.
    pub(crate) fn of(enabled: Option<bool>, stream: &impl IsTerminal) -> Paint {
        let default = || {
            let no_color = std::env::var_os(env::NO_COLOR).is_some_and(|v| !v.is_empty());
            stream.is_terminal() && !no_color && !terminal_is_dumb()
        };
        Paint { on: enabled.unwrap_or_else(default) }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// Emphasizes text.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// De-emphasizes text.
    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Marks a failure.
    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Marks a success.
    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Formats the name of a task, always in the same colour.
    pub(crate) fn task(self, task: &TaskId) -> String {
        let sum = task.role.as_str().bytes().map(usize::from).sum::<usize>();
        let code = TASKS[(sum + task.index as usize) % TASKS.len()];
        self.with(code, &task.to_string())
    }

    /// Formats a word in the colour of a task state.
    pub(crate) fn state(self, state: TaskState, word: &str) -> String {
        match state {
            TaskState::Running => self.bold(word),
            TaskState::Succeeded => self.green(word),
            TaskState::Failed => self.red(word),
            TaskState::BackingOff
            | TaskState::Requested
            | TaskState::Launching
            | TaskState::Ready
            | TaskState::Starting
            | TaskState::Restarting
            | TaskState::Stopping
            | TaskState::Stopped => self.dim(word),
        }
    }
}

/// Returns whether the terminal cannot redraw lines.
pub(super) fn terminal_is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}
