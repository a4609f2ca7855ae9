//! The program's part in an agent's life: it starts, stops and ends, one a round.

use super::Agent;
use crate::{
    agent::program::{self, Program, StartError},
    talk::AgentReport,
};
use std::time::Duration;
use tokio::{task::JoinHandle, time::Instant};
use ydl_core::{Exit, Run, Span};

/// A program on its way: its file may lie on a slow disk.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) program: JoinHandle<Result<Program, StartError>>,
    pub(super) round: u32,
    /// When it is given up, once it should no longer run.
    pub(super) give_up_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) program: Program,
    pub(super) round: u32,
    pub(super) since: Instant,
    /// When SIGTERM is followed by SIGKILL.
    pub(super) kill_at: Option<Instant>,
}

impl Agent {
    pub(super) fn is_busy(&self) -> bool {
        self.starting.is_some() || self.running.is_some()
    }

    pub(super) fn on_kill_due(&mut self) {
        if let Some(running) = &mut self.running {
            running.program.kill();
            running.kill_at = None;
        }
        if let Some(starting) = self.starting.take() {
            // Dropped on its way, it does not run.
            starting.program.abort();
            self.report_not_started(starting.round, "it was told to stop before it ran".into());
        }
    }

    pub(super) fn on_exited(&mut self, exit: program::Exit) {
        let Some(running) = self.running.take().filter(|_| !self.cut_off) else {
            return;
        };
        let mut stderr_tail = exit.stderr_tail;
        if exit.dropped_bytes > 0 {
            let note = format!(
                "ydl: {} bytes of output could not be kept",
                exit.dropped_bytes
            );
            tracing::warn!("{note}");
            stderr_tail = format!("{stderr_tail}\n{note}");
        }
        let mib = (exit.peak_memory_bytes.max(self.meter.peak_bytes()) >> 20).max(1);
        let exit = Exit {
            code: exit.code,
            signal: exit.signal,
            not_started: None,
            container_signalled: self.signalled,
            peak_memory_mib: mib,
            ran: Span(running.since.elapsed().as_millis() as u64),
            stderr_tail,
        };
        self.report(AgentReport::Exited {
            round: running.round,
            exit,
        });
    }

    pub(super) fn stop_program(&mut self, grace: Span) {
        let end = Instant::now() + Duration::from_millis(grace.0);
        // What is about to run is asked to stop once it runs, and is given up if it never does.
        if let Some(starting) = &mut self.starting {
            starting.give_up_at.get_or_insert(end);
        }
        if let Some(running) = &mut self.running
            && running.kill_at.is_none()
        {
            running.program.terminate();
            running.kill_at = Some(end);
        }
    }

    pub(super) fn start(&mut self, run: Run) {
        let round = run.round;
        self.ran = round;
        self.meter.begin();
        let prepared = self
            .surroundings
            .prepare(&self.setting, &self.submitted, &run);
        match prepared {
            Ok((program, output)) => {
                if let Some(hold) = &mut self.hold {
                    hold.release_for_start();
                }
                self.starting = Some(Starting {
                    program: tokio::spawn(Program::start(program, output)),
                    round,
                    give_up_at: None,
                });
            }
            Err(why) => self.report_not_started(round, why),
        }
    }

    pub(super) fn on_started(&mut self, started: Result<Program, StartError>) {
        let Some(Starting { round, .. }) = self.starting.take() else {
            return;
        };
        match started {
            Ok(program) => {
                self.running = Some(Running {
                    program,
                    round,
                    since: Instant::now(),
                    kill_at: None,
                });
                self.report(AgentReport::Started { round });
            }
            Err(error) => {
                let hint = error.hint().map(|hint| format!(" ({hint})"));
                let hint = hint.unwrap_or_default();
                self.report_not_started(round, format!("{error}{hint}"));
            }
        }
    }

    pub(super) fn report_not_started(&mut self, round: u32, why: String) {
        let exit = Exit {
            not_started: Some(why),
            container_signalled: self.signalled,
            ..Exit::default()
        };
        self.report(AgentReport::Exited { round, exit });
    }
}
