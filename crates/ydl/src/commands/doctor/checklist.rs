//! Results of the checks, printed one per line as they come.

use crate::{
    cli::GlobalArgs,
    terminal::{self, Paint, clean},
};
use serde_json::{Value, json};
use std::{io, time::Duration};
use tokio::time::Instant;
use ydl_os::report::{Exit, Report};

/// Width of the column of check names.
const NAME_WIDTH: usize = 15;
/// Width of the column of check states.
const STATE_WIDTH: usize = 7;

/// Result of a check.
#[derive(Clone, Debug)]
enum CheckState {
    Ok,
    Warning,
    Failed,
    /// A check that it depends on failed.
    Skipped {
        blocked_by: &'static str,
    },
}

impl CheckState {
    fn word(&self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::Warning => "warning",
            CheckState::Failed => "failed",
            CheckState::Skipped { .. } => "skipped",
        }
    }
}

/// All checks so far.
#[derive(Debug)]
pub(crate) struct Checklist {
    global: GlobalArgs,
    paint: Paint,
    checks: Vec<(&'static str, CheckState)>,
    /// Failures, in the order found.
    failed: Vec<(&'static str, Report)>,
    began: Instant,
}

impl Checklist {
    pub(crate) fn new(global: GlobalArgs) -> Checklist {
        Checklist {
            global,
            paint: Paint::of(global.use_color(), &io::stdout()),
            checks: Vec::new(),
            failed: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Records a check that passed.
    pub(crate) fn ok(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
    ) -> Result<(), Report> {
        self.print(name, CheckState::Ok, &message.into(), None, None)
    }

    /// Records a check that passed, with an additional key for the JSON output.
    pub(crate) fn ok_with(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
        extra: (&'static str, Value),
    ) -> Result<(), Report> {
        self.print(name, CheckState::Ok, &message.into(), None, Some(extra))
    }

    /// Records a problem that does not prevent jobs from running.
    pub(crate) fn warn(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
    ) -> Result<(), Report> {
        self.print(name, CheckState::Warning, &message.into(), None, None)
    }

    /// Records a problem that prevents jobs from running.
    pub(crate) fn fail(&mut self, name: &'static str, why: Report) -> Result<(), Report> {
        let printed = self.print(name, CheckState::Failed, &why.what, why.hint.as_deref(), None);
        self.failed.push((name, why));
        printed
    }

    /// Records a check from its result.
    pub(crate) fn record(
        &mut self,
        name: &'static str,
        result: Result<String, Report>,
    ) -> Result<(), Report> {
        match result {
            Ok(message) => self.ok(name, message),
            Err(why) => self.fail(name, why),
        }
    }

    /// Returns whether the check `name` can run: none of the checks that it needs failed. Otherwise records it as skipped
    /// because of the first failure among them.
    pub(crate) fn can_run(&mut self, name: &'static str, needs: &[&str]) -> Result<bool, Report> {
        let mut checks = self.checks.iter();
        let blocker = checks.find_map(|(check, state)| match state {
            CheckState::Failed if needs.contains(check) => Some(*check),
            CheckState::Skipped { blocked_by } if needs.contains(check) => Some(*blocked_by),
            _ => None,
        });
        let Some(blocked_by) = blocker else {
            self.began = Instant::now();
            return Ok(true);
        };
        let message = format!("because `{blocked_by}` failed");
        self.print(name, CheckState::Skipped { blocked_by }, &message, None, None)?;
        Ok(false)
    }

    fn print(
        &mut self,
        name: &'static str,
        state: CheckState,
        message: &str,
        hint: Option<&str>,
        extra: Option<(&'static str, Value)>,
    ) -> Result<(), Report> {
        let took = self.began.elapsed();
        let word = state.word();
        let printed = if self.global.json {
            let mut check = json!({
                "check": name, "state": word, "message": message, "took_ms": millis(took),
            });
            if let Some(hint) = hint {
                check["hint"] = hint.into();
            }
            if let CheckState::Skipped { blocked_by } = &state {
                check["blocked_by"] = (*blocked_by).into();
            }
            if let Some((key, value)) = extra {
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
            let line = format!("{painted}  {name:NAME_WIDTH$}  {}\n", clean(message));
            terminal::print(line)
        };
        self.checks.push((name, state));
        self.began = Instant::now();
        printed
    }

    /// Prints the summary with the failures in the order of the checks. Returns the exit code of the first failure.
    pub(crate) fn conclude(self) -> Result<Exit, Report> {
        let exit = self.failed.first().map_or(Exit::Success, |(_, why)| why.exit);
        let first_failed = self.failed.first().map(|(name, _)| *name);
        if self.global.json {
            let result = json!({ "ok": first_failed.is_none(), "first_failure": first_failed, "exit": exit.code() });
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

pub(crate) fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
