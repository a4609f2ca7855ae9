//! Results of the checks, printed one per line as they come.

use crate::{
    cli::GlobalArgs,
    terminal::{self, Paint, clean},
};
use serde_json::{Value, json};
use std::{io, time::Duration};
use tokio::time::Instant;
use ydl_os::report::{Exit, Report};

/// The widest name of a check.
const NAME_WIDTH: usize = 15;
/// The widest word for how a check ended.
const STATE_WIDTH: usize = 7;

/// Result of a check.
#[derive(Clone, Debug)]
enum CheckState {
    Ok,
    Warning,
    Failed,
    /// It could not be made.
    Skipped {
        because: &'static str,
    },
}

impl CheckState {
    fn word(&self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::Warning => "warning",
            CheckState::Failed => "wrong",
            CheckState::Skipped { .. } => "skipped",
        }
    }
}

/// All checks so far.
#[derive(Debug)]
pub struct Checklist {
    global: GlobalArgs,
    paint: Paint,
    checks: Vec<(&'static str, CheckState)>,
    /// Failures, in the order found.
    failed: Vec<(&'static str, Report)>,
    began: Instant,
}

impl Checklist {
    pub fn new(global: GlobalArgs) -> Checklist {
        Checklist {
            global,
            paint: Paint::of(global.use_color(), &io::stdout()),
            checks: Vec::new(),
            failed: Vec::new(),
            began: Instant::now(),
        }
    }

    /// All is well, with what was found.
    pub fn ok(&mut self, name: &'static str, found: impl Into<String>) -> Result<(), Report> {
        self.print(name, CheckState::Ok, &found.into(), None, None)
    }

    /// The same, with more for machines.
    pub fn ok_with(
        &mut self,
        name: &'static str,
        found: impl Into<String>,
        more: (&'static str, Value),
    ) -> Result<(), Report> {
        self.print(name, CheckState::Ok, &found.into(), None, Some(more))
    }

    /// A job may run all the same.
    pub fn warn(&mut self, name: &'static str, found: impl Into<String>) -> Result<(), Report> {
        self.print(name, CheckState::Warning, &found.into(), None, None)
    }

    /// No job can run.
    pub fn fail(&mut self, name: &'static str, why: Report) -> Result<(), Report> {
        let printed = self.print(name, CheckState::Failed, &why.what, why.hint.as_deref(), None);
        self.failed.push((name, why));
        printed
    }

    /// Either, as it came out.
    pub fn record(
        &mut self,
        name: &'static str,
        found: Result<String, Report>,
    ) -> Result<(), Report> {
        match found {
            Ok(found) => self.ok(name, found),
            Err(why) => self.fail(name, why),
        }
    }

    /// Returns whether all of these are well enough for the check `name`; where they are not, it is said to be skipped
    /// because of the first one that is wrong.
    pub fn can_run(&mut self, name: &'static str, needs: &[&str]) -> Result<bool, Report> {
        let mut known = self.checks.iter();
        let blocker = known.find_map(|(known, state)| match state {
            CheckState::Failed if needs.contains(known) => Some(*known),
            CheckState::Skipped { because } if needs.contains(known) => Some(*because),
            _ => None,
        });
        let Some(because) = blocker else {
            self.began = Instant::now();
            return Ok(true);
        };
        let found = format!("because of `{because}`");
        self.print(name, CheckState::Skipped { because }, &found, None, None)?;
        Ok(false)
    }

    fn print(
        &mut self,
        name: &'static str,
        state: CheckState,
        found: &str,
        hint: Option<&str>,
        more: Option<(&'static str, Value)>,
    ) -> Result<(), Report> {
        let took = self.began.elapsed();
        let word = state.word();
        let printed = if self.global.json {
            let mut check = json!({
                "check": name, "state": word, "found": found, "took_ms": millis(took),
            });
            if let Some(hint) = hint {
                check["hint"] = hint.into();
            }
            if let CheckState::Skipped { because } = &state {
                check["because"] = (*because).into();
            }
            if let Some((key, value)) = more {
                check[key] = value;
            }
            terminal::print_json(&check)
        } else {
            let padded = format!("{word:STATE_WIDTH$}");
            let painted = match state {
                CheckState::Ok => self.paint.green(&padded),
                CheckState::Failed => self.paint.red(&padded),
                CheckState::Warning => self.paint.bold(&padded),
                CheckState::Skipped { .. } => self.paint.dim(&padded),
            };
            let line = format!("{painted}  {name:NAME_WIDTH$}  {}\n", clean(found));
            terminal::print(line)
        };
        self.checks.push((name, state));
        self.began = Instant::now();
        printed
    }

    /// Prints the summary, first cause first. Returns the exit code that `submit` would have ended with.
    pub fn conclude(self) -> Result<Exit, Report> {
        let exit = self.failed.first().map_or(Exit::Success, |(_, why)| why.exit);
        let first_failed = self.failed.first().map(|(name, _)| *name);
        if self.global.json {
            let result = json!({ "ok": first_failed.is_none(), "culprit": first_failed, "exit": exit.code() });
            terminal::print_json(&json!({ "result": result }))?;
        }
        if first_failed.is_none() {
            if !self.global.json {
                let warned = |(_, state): &&(_, CheckState)| matches!(state, CheckState::Warning);
                terminal::message(match self.checks.iter().filter(warned).count() {
                    0 => "all checks passed".to_owned(),
                    1 => "all checks passed, with 1 warning".to_owned(),
                    n => format!("all checks passed, with {n} warnings"),
                });
            }
            return Ok(exit);
        }
        let all = self.failed.into_iter().map(|(name, why)| {
            let named = Report { what: format!("{name}: {}", why.what), ..why };
            named.to_string()
        });
        terminal::message(all.collect::<Vec<_>>().join("\n\n"));
        Ok(exit)
    }
}

pub fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
