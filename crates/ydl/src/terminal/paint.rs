//! Colours, where they are wanted.

use std::io::IsTerminal;
use ydl_core::{TaskId, view::TaskState};
use ydl_os::env;

/// Colours or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

/// Colours that distinguish tasks; red and green have a meaning of their own.
const TASKS: [&str; 5] = ["36", "33", "35", "34", "96"];

impl Paint {
    /// Decides for text on that stream; by default a terminal gets colours unless `NO_COLOR` is set.
    pub fn of(wanted: Option<bool>, stream: &impl IsTerminal) -> Paint {
        let usual = || {
            let refused = std::env::var_os(env::NO_COLOR).is_some_and(|v| !v.is_empty());
            stream.is_terminal() && !refused && !terminal_is_dumb()
        };
        Paint { on: wanted.unwrap_or_else(usual) }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// Emphasizes text.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// De-emphasizes text.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Marks a failure.
    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Marks a success.
    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    /// The name of a task before its output, always in the same colour.
    pub fn task(self, task: &TaskId) -> String {
        let sum = task.role.as_str().bytes().map(usize::from).sum::<usize>();
        let code = TASKS[(sum + task.index as usize) % TASKS.len()];
        self.with(code, &task.to_string())
    }

    /// A word in the colour of the state.
    pub fn state(self, state: TaskState, word: &str) -> String {
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

/// A terminal on which nothing can be redrawn.
pub(super) fn terminal_is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}
