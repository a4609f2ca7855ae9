//! The first cause of a failure. The peers of a failed program lose their connections to it and fail
//! as well, often before the report of its own exit arrives: it may still be cleaning up.
//!
//! While the job ends, the exits of the programs that are being stopped are compared with the cause.
//! An error of a program itself precedes the loss of a connection to a peer. Otherwise the program
//! that ended first is the cause.

use super::{Job, Mutant, Stage, TaskKey};
use crate::{
    action::Action,
    ending::{Cause, Ending, Outcome},
    event::ProgramExit,
    history::HistoryKind,
    time::Time,
};
use alloc::vec::Vec;

/// Texts of libraries about a peer that is gone, in lower case.
const PEER_LOSS: &[&str] = &[
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "brokenpipeerror",
    "connection refused",
    "connectionrefusederror",
    "connectionreseterror",
    "socket closed",
    "remote process exit",
    "failed to connect to all addresses",
    "horovodinternalerror",
    "distbackenderror",
    "distnetworkerror",
    "ncclremoteerror",
    "unavailableerror",
];
/// Texts of programs that were told to stop, in lower case.
const STOPPED: &[&str] =
    &["keyboardinterrupt", "systemexit", "sigterm", "signal: 15", "signal 15", "terminated"];
/// First line of a traceback of Python.
const TRACEBACK: &str = "Traceback (most recent call last):";
/// Beginning of a frame in a traceback.
const FRAME: &str = "  File \"";
/// Lines between the tracebacks of an exception and of another that followed from it.
const CHAINS: [&str; 2] = ["During handling of the above exception", "The above exception was the"];
/// Signals that a program causes itself: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
const FATAL_SIGNALS: [i32; 6] = [4, 5, 6, 7, 8, 11];
const SIGPIPE: i32 = 13;
/// Signals of a stop, and the exit codes of shells for them.
const STOP_SIGNALS: [i32; 2] = [15, 9];
/// Exit code of Python after an exception.
const EXCEPTION_CODE: i32 = 1;

/// Kind of a failure, by what the program printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// An error of the program itself.
    Own,
    /// The program lost a peer.
    PeerLoss,
    Unknown,
}

impl Job {
    /// Estimates the end of a task's program. Run times are exact, and reports of a start are only
    /// late by a message; clocks of nodes are not compared.
    pub(super) fn ended_at(&self, key: TaskKey) -> Time {
        let task = self.task(key);
        let ran = task.exit.as_ref().map(|exit| exit.ran);
        match (task.ran_from, ran) {
            (Some(from), Some(ran)) => (from + ran).min(self.now),
            _ => self.now,
        }
    }

    /// Replaces the cause of the job's failure if the exit of a program that is being stopped
    /// precedes it.
    pub(super) fn revise_cause(&mut self, key: TaskKey, ending: Ending, out: &mut Vec<Action>) {
        let Stage::Ending(Outcome::Failed(Cause::Task { ending: known, stderr_tail, .. })) =
            &self.stage
        else {
            return;
        };
        let known_kind = match known {
            Ending::Exited { .. } | Ending::Signalled { .. } => kind(known, stderr_tail),
            // The cluster or a node is the cause.
            _ => return,
        };
        let exit = self.task(key).exit.as_ref();
        let Some((ending, found_kind)) = own_failure(ending, exit) else {
            return;
        };
        if self.spec.roles[key.role].is_sidecar() || self.mutant.is(Mutant::KeepsReportedCause) {
            return;
        }
        let at = self.ended_at(key);
        let is_first = match (found_kind, known_kind) {
            (FailureKind::Own, FailureKind::PeerLoss) => true,
            (FailureKind::PeerLoss, FailureKind::Own | FailureKind::Unknown) => false,
            _ => self.failed_at.is_some_and(|known| at < known),
        };
        if is_first {
            let cause = self.cause(key, ending);
            self.record(HistoryKind::CauseFound { cause: cause.clone() }, out);
            self.stage = Stage::Ending(Outcome::Failed(cause));
            self.failed_at = Some(at);
        }
    }
}

/// Returns a failure that may be the cause although the program was told to stop, with its kind; none
/// if the program ended because of that.
fn own_failure(ending: Ending, exit: Option<&ProgramExit>) -> Option<(Ending, FailureKind)> {
    let tail = exit.map_or("", |exit| exit.stderr_tail.as_str());
    let stopped = match &ending {
        Ending::MemoryLimit { .. } => return Some((ending, FailureKind::Own)),
        Ending::Signalled { signal } => STOP_SIGNALS.contains(signal),
        Ending::Exited { code } => STOP_SIGNALS.iter().any(|signal| *code == 128 + signal),
        _ => return None,
    };
    let kind = kind(&ending, tail);
    match (stopped, kind) {
        (false, _) => Some((ending, kind)),
        // It was cleaning up after an exception. The signal is not the reason.
        (true, FailureKind::Own) => Some((Ending::Exited { code: EXCEPTION_CODE }, kind)),
        (true, _) => None,
    }
}

fn kind(ending: &Ending, tail: &str) -> FailureKind {
    let exception = first_exception(tail);
    let text = exception.unwrap_or(tail).to_lowercase();
    let contains = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match ending {
        _ if contains(PEER_LOSS) => FailureKind::PeerLoss,
        Ending::Signalled { signal: SIGPIPE } => FailureKind::PeerLoss,
        _ if exception.is_some() && !contains(STOPPED) => FailureKind::Own,
        Ending::Signalled { signal } if FATAL_SIGNALS.contains(signal) => FailureKind::Own,
        _ => FailureKind::Unknown,
    }
}

/// Returns the exception of Python that ended a program: of the last traceback, and of those that led
/// to it the first. Launchers of torch put `[rank0]: ` before each line.
fn first_exception(tail: &str) -> Option<&str> {
    let (mut found, mut inside, mut chained) = (None, false, false);
    for line in tail.lines().map(without_rank) {
        if line == TRACEBACK {
            if !chained {
                found = None;
            }
            (inside, chained) = (true, false);
        } else if found.is_none() && line.starts_with(FRAME) {
            // The first line of a long traceback is cut off.
            inside = true;
        } else if CHAINS.iter().any(|chain| line.starts_with(chain)) {
            chained = true;
        } else if inside && !line.is_empty() && !line.starts_with(char::is_whitespace) {
            found = found.or(Some(line));
            inside = false;
        }
    }
    found
}

fn without_rank(line: &str) -> &str {
    let rest = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]: "));
    match rest {
        Some((rank, rest)) if rank.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    const EXIT: Ending = Ending::Exited { code: 1 };

    fn traceback(exception: &str) -> String {
        alloc::format!(
            "{TRACEBACK}\n  File \"train.py\", line 3, in <module>\n    x()\n{exception}\n"
        )
    }

    #[test]
    fn exceptions_of_a_program_are_its_own_errors() {
        for tail in [
            traceback("OSError: [Errno 28] No space left on device"),
            // Later noise is not the reason.
            traceback("OSError: disk full") + "gloo: Connection closed by peer\n",
            traceback("OSError: disk full")
                + "\nDuring handling of the above exception, another exception occurred:\n\n"
                + &traceback("ConnectionResetError: reset by peer"),
            traceback("ConnectionResetError: handled earlier") + &traceback("ValueError: no"),
            "    main()\n  File \"train.py\", line 3\nOSError: disk full".into(),
            "[rank1]: Traceback (most recent call last):\n[rank1]:   File\n[rank1]: KeyError: 1"
                .into(),
        ] {
            assert_eq!(kind(&EXIT, &tail), FailureKind::Own, "{tail}");
        }
    }

    #[test]
    fn losses_of_a_peer_are_recognized() {
        for tail in [
            traceback("RuntimeError: [/gloo/pair.cc:598] Connection closed by peer [10.0.0.1]:9"),
            traceback("horovod.common.exceptions.HorovodInternalError: Horovod has been shut down")
                + "\nDuring handling of the above exception, another exception occurred:\n\n"
                + &traceback("RuntimeError: training failed"),
            traceback("torch.distributed.DistBackendError: NCCL error in: …"),
            "what():  Connection reset by peer".into(),
        ] {
            assert_eq!(kind(&EXIT, &tail), FailureKind::PeerLoss, "{tail}");
        }
        assert_eq!(kind(&Ending::Signalled { signal: SIGPIPE }, ""), FailureKind::PeerLoss);
    }

    #[test]
    fn the_end_of_a_stopped_program_is_no_cause() {
        let exit = |tail: &str| {
            let stderr_tail = String::from(tail);
            Some(ProgramExit { stderr_tail, ..ProgramExit::default() })
        };
        let term = Ending::Signalled { signal: 15 };
        assert_eq!(own_failure(term.clone(), exit("").as_ref()), None);
        assert_eq!(own_failure(Ending::Exited { code: 143 }, exit("bye").as_ref()), None);
        let interrupted = traceback("SignalException: Process 3 got signal: 15");
        assert_eq!(own_failure(term.clone(), exit(&interrupted).as_ref()), None);
        assert_eq!(own_failure(Ending::Succeeded, None), None);
        let failed = traceback("OSError: disk full");
        assert_eq!(own_failure(term, exit(&failed).as_ref()), Some((EXIT, FailureKind::Own)));
        let crashed = Ending::Signalled { signal: 11 };
        let found = own_failure(crashed.clone(), exit("").as_ref());
        assert_eq!(found, Some((crashed, FailureKind::Own)));
    }
}
