//! Execution of programs: start, stop and end, one program per round.

use super::Agent;
use crate::agent::{
    links::{LinkListener, LinkTasks},
    outputs::is_clean_exit,
    ports::PortReservation,
    program::{Program, StartError},
    record::{self, ExitRecord},
    shim_protocol::ShimExit,
    shipping::LogShipperHandle,
    task_env::ProgramContext,
};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use ydl_core::{AttemptRun, ProgramExit, Span, TaskId};
use ydl_os::reason;
use ydl_proto::{
    messages::AgentReport,
    version::{to_json, write_json},
};

/// A program being started: its file may be on a slow disk.
#[derive(Debug)]
pub(super) struct StartingProgram {
    pub(super) program: JoinHandle<Result<Program, StartError>>,
    attempt: AttemptContext,
    /// Deadline of the start, once the program should no longer run.
    pub(super) abort_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct RunningProgram {
    pub(super) program: Program,
    attempt: AttemptContext,
    pub(super) started_at: Instant,
    /// Time of SIGKILL after SIGTERM.
    pub(super) kill_at: Option<Instant>,
    /// Set if it was told to stop.
    stop_requested: bool,
    /// Files that it had open for writing when it was killed.
    open_files: BTreeSet<(u64, u64)>,
    ended: Option<SystemTime>,
    /// Deadline for its last bytes to its rendezvous, once it has exited.
    output_deadline: Option<Instant>,
    /// Time it had been stopped by SIGSTOP, if it was killed for that.
    halted: Option<Duration>,
}

/// Task, attempt and round of a program.
#[derive(Debug)]
struct AttemptContext {
    task: TaskId,
    attempt: u32,
    round: u32,
    /// Handle of its log shipper.
    log_shipper: Option<LogShipperHandle>,
    /// Links of the program to its framework's rendezvous.
    links: Option<LinkTasks>,
}

impl RunningProgram {
    /// Waits until the program has exited and its last bytes to its rendezvous have arrived, since other tasks may wait
    /// for them.
    pub(super) async fn exited(&mut self, timeout: Duration) -> ShimExit {
        let exit = self.program.wait().await;
        self.ended.get_or_insert_with(SystemTime::now);
        // Repeated calls share the deadline of the first.
        let end = *self.output_deadline.get_or_insert(Instant::now() + timeout);
        if let Some(links) = &mut self.attempt.links
            && timeout_at(end, links.drained()).await.is_err()
        {
            tracing::warn!("the last bytes of the program to its rendezvous were not delivered");
        }
        exit
    }
}

impl Agent {
    pub(super) fn is_busy(&self) -> bool {
        self.starting.is_some() || self.running.is_some()
    }

    pub(super) fn on_kill_due(&mut self) {
        if let Some(running) = &mut self.running {
            running.open_files = self.uploads.upload_log.scan_open_files().files;
            running.program.kill();
            running.kill_at = None;
        }
        if let Some(starting) = self.starting.take() {
            // Aborted during its start, it does not run.
            starting.program.abort();
            self.report_not_started(starting.attempt, "it was stopped before it started".into());
        }
    }

    /// Kills a program that has been stopped by SIGSTOP for the heartbeat timeout: its peers wait for it as for a lost
    /// agent.
    pub(super) fn end_if_halted(&mut self) {
        let halted = self.meter.halted();
        if halted < Duration::from_millis(self.submitted.spec.timeouts.heartbeat.0) {
            return;
        }
        if let Some(running) = self.running.as_mut().filter(|it| it.halted.is_none()) {
            running.halted = Some(halted);
            self.on_kill_due();
        }
    }

    pub(super) fn on_exited(&mut self, exit: ShimExit) {
        let Some(running) = self.running.take() else {
            return;
        };
        let mut stderr_tail = exit.stderr_tail;
        if exit.dropped_bytes > 0 {
            let note = format!("ydl: {} bytes of output could not be written", exit.dropped_bytes);
            tracing::warn!("{note}");
            stderr_tail = format!("{stderr_tail}\n{note}");
        }
        self.meter.outside(None);
        if exit.memory_short {
            let note =
                "ydl: the container ran out of memory, and the kernel killed one of its processes";
            stderr_tail = format!("{stderr_tail}\n{note}");
        }
        if let Some(halted) = running.halted {
            let note = format!(
                "ydl: a process of the program was stopped (SIGSTOP) for {} s; the program was killed",
                halted.as_secs()
            );
            stderr_tail = format!("{stderr_tail}\n{note}");
        }
        let failed = exit.code != Some(0) && !running.stop_requested;
        let reservation = self.port_reservation.as_ref().filter(|_| failed);
        let port_taken = reservation.and_then(PortReservation::taken);
        let mib = (exit.peak_memory_bytes.max(self.meter.peak_bytes()) >> 20).max(1);
        let exit = ProgramExit {
            code: exit.code,
            signal: exit.signal,
            not_started: None,
            port_taken,
            // Decided by the master.
            outdated: false,
            container_signalled: self.is_terminating,
            peak_memory_mib: mib,
            ran: Span(running.started_at.elapsed().as_millis() as u64),
            stderr_tail,
        };
        let clean = is_clean_exit(exit.code, running.stop_requested);
        let ended = running.ended.unwrap_or_else(SystemTime::now);
        self.uploads.upload_log.record_exit(clean, ended, running.open_files);
        self.on_ended(running.attempt, exit);
    }

    /// Writes the exit record and reports the exit.
    fn on_ended(&mut self, attempt: AttemptContext, exit: ProgramExit) {
        let record = ExitRecord {
            task: &attempt.task,
            attempt: attempt.attempt,
            round: attempt.round,
            container: &self.bootstrap.container,
            host: &self.bootstrap.host,
            at_ms: record::now_ms(),
            exit: &exit,
        };
        tracing::info!(
            "{}, attempt {}, has ended: {}",
            attempt.task,
            attempt.attempt,
            describe(&exit)
        );
        let dir = self.task_env.logs(&attempt.task, attempt.attempt);
        let written = std::fs::create_dir_all(&dir)
            .and_then(|()| write_json(&dir.join(record::FILE), &record));
        if let Err(error) = written {
            tracing::warn!("cannot write the exit record: {error}");
        }
        self.request_permits.logs.program_ended();
        self.uploads.program_ended();
        if let Some(log_shipper) = attempt.log_shipper {
            log_shipper.end(to_json(&record).ok());
        }
        // An agent cut off from its master has ended its program itself; that is not reported.
        if !self.cut_off {
            let round = attempt.round;
            self.report(AgentReport::Exited { round, exit });
        }
    }

    pub(super) fn stop_program(&mut self, grace: Span) {
        let end = Instant::now() + Duration::from_millis(grace.0);
        // A starting program is terminated once it runs, and aborted if it never does.
        if let Some(starting) = &mut self.starting {
            starting.abort_at.get_or_insert(end);
        }
        if let Some(running) = &mut self.running
            && running.kill_at.is_none()
        {
            running.program.terminate();
            running.stop_requested = true;
            running.kill_at = Some(end);
        }
    }

    pub(super) fn start(&mut self, run: AttemptRun) {
        self.last_round = run.round;
        let AttemptRun { task, attempt, round, .. } = &run;
        tracing::info!("starting {task}, attempt {attempt}, in round {round}");
        self.meter.begin();
        let spec = &self.submitted.spec;
        let is_sidecar = self.is_sidecar(&run.task);
        let has_rendezvous = !is_sidecar && spec.framework.uses_rendezvous(&spec.roles);
        let listener = has_rendezvous.then(LinkListener::bind);
        let listener = listener.transpose().map_err(|error| {
            let error = reason(&error);
            format!("cannot bind the rendezvous port: {error}")
        });
        let (bootstrap, devices, submitted) = (&self.bootstrap, &self.devices, &self.submitted);
        let ports = self.port_reservation.as_ref().map(PortReservation::ports).unwrap_or_default();
        let program_env = &self.program_env;
        let prepared = listener.and_then(|listener| {
            let context = ProgramContext {
                rendezvous_port: listener.as_ref().map(LinkListener::port),
                ports,
                program_env,
            };
            let prepared = self.task_env.prepare(bootstrap, devices, submitted, &run, &context)?;
            Ok((prepared, listener))
        });
        let mut attempt = AttemptContext {
            task: run.task,
            attempt: run.attempt,
            round: run.round,
            log_shipper: None,
            links: None,
        };
        match prepared {
            Ok(((program, output), listener)) => {
                // A program in an image is a descendant of its engine, not of this agent.
                let guarded = program.container.is_none();
                let host = self.bootstrap.host.clone();
                let client = self.master.follow();
                attempt.links =
                    listener.map(|listener| listener.serve(client, attempt.round, host, guarded));
                if let (Some(worker), Some(staging)) = (&self.hdfs_worker, &self.staging) {
                    let remote = staging.attempt_logs(&attempt.task, attempt.attempt);
                    let (dir, rotation) = (output.dir.clone(), output.rotation);
                    attempt.log_shipper = Some(worker.ship_logs(dir, remote, rotation));
                }
                self.start_output_uploads();
                if !is_sidecar {
                    self.start_checkpoint_upload();
                }
                if let Some(reservation) = &mut self.port_reservation {
                    reservation.release_for_start();
                }
                self.starting = Some(StartingProgram {
                    program: tokio::spawn(Program::start(program, output)),
                    attempt,
                    abort_at: None,
                });
            }
            Err(why) => self.report_not_started(attempt, why),
        }
    }

    pub(super) fn on_started(&mut self, started: Result<Program, StartError>) {
        let Some(StartingProgram { attempt, .. }) = self.starting.take() else {
            return;
        };
        match started {
            Ok(program) => {
                self.meter.outside(program.shim_host_pid());
                self.uploads.upload_log.set_outside_process(program.shim_host_pid());
                let round = attempt.round;
                self.running = Some(RunningProgram {
                    program,
                    attempt,
                    started_at: Instant::now(),
                    kill_at: None,
                    stop_requested: false,
                    open_files: BTreeSet::new(),
                    ended: None,
                    output_deadline: None,
                    halted: None,
                });
                self.report(AgentReport::Started { round });
            }
            Err(error) => {
                let hint = error.hint().map(|hint| format!(" ({hint})"));
                let hint = hint.unwrap_or_default();
                self.report_not_started(attempt, format!("{error}{hint}"));
            }
        }
    }

    /// Reports a program as failed without starting it.
    pub(super) fn fail_start(&mut self, run: AttemptRun, why: String) {
        self.last_round = run.round;
        let attempt = AttemptContext {
            task: run.task,
            attempt: run.attempt,
            round: run.round,
            log_shipper: None,
            links: None,
        };
        self.report_not_started(attempt, why);
    }

    fn report_not_started(&mut self, attempt: AttemptContext, why: String) {
        let exit = ProgramExit {
            not_started: Some(why),
            container_signalled: self.is_terminating,
            ..ProgramExit::default()
        };
        self.on_ended(attempt, exit);
    }
}

/// Describes an exit in the agent's log.
fn describe(exit: &ProgramExit) -> String {
    match (&exit.not_started, exit.code, exit.signal) {
        (Some(why), ..) => format!("not started: {why}"),
        (None, Some(code), _) => format!("code {code} after {}", exit.ran),
        (None, None, Some(signal)) => format!("signal {signal} after {}", exit.ran),
        (None, None, None) => format!("unknown exit after {}", exit.ran),
    }
}
