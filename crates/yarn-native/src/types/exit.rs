//! Exit status of a container.

use std::fmt;
use std::str::FromStr;

use crate::types::BadName;

/// Exit status of a container. Displayed and parsed by YARN's name, or as the number if it has
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ExitStatus {
    /// The process exited by itself or by a signal from outside the NodeManager: 0 is success, 137
    /// is SIGKILL, 143 is SIGTERM.
    Exited(i32),
    /// Has not ended.
    Unfinished,
    /// Released by its master, or lost with its node.
    Aborted,
    /// Too many failed disks on the node.
    DisksFailed,
    /// Preempted by the scheduler.
    Preempted,
    /// Exceeded its virtual memory limit.
    VirtualMemoryExceeded,
    /// Exceeded its memory limit.
    MemoryExceeded,
    /// Stopped by its master.
    KilledByMaster,
    /// Stopped by the ResourceManager.
    KilledByResourceManager,
    /// Stopped after the end of its application.
    KilledAfterApplication,
    /// Opportunistic, and stopped in favour of a guaranteed container.
    KilledByContainerScheduler,
    /// Wrote too much to its logs.
    KilledForExcessLogs,
    /// Number without a name in this crate.
    Other(i32),
}

const NAMES: [(ExitStatus, i32, &str); 11] = [
    (ExitStatus::Unfinished, -1000, "INVALID"),
    (ExitStatus::Aborted, -100, "ABORTED"),
    (ExitStatus::DisksFailed, -101, "DISKS_FAILED"),
    (ExitStatus::Preempted, -102, "PREEMPTED"),
    (ExitStatus::VirtualMemoryExceeded, -103, "KILLED_EXCEEDED_VMEM"),
    (ExitStatus::MemoryExceeded, -104, "KILLED_EXCEEDED_PMEM"),
    (ExitStatus::KilledByMaster, -105, "KILLED_BY_APPMASTER"),
    (ExitStatus::KilledByResourceManager, -106, "KILLED_BY_RESOURCEMANAGER"),
    (ExitStatus::KilledAfterApplication, -107, "KILLED_AFTER_APP_COMPLETION"),
    (ExitStatus::KilledByContainerScheduler, -108, "KILLED_BY_CONTAINER_SCHEDULER"),
    (ExitStatus::KilledForExcessLogs, -109, "KILLED_FOR_EXCESS_LOGS"),
];

impl ExitStatus {
    /// Returns true if the process exited with 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Returns YARN's number.
    pub fn number(self) -> i32 {
        match self {
            Self::Exited(number) | Self::Other(number) => number,
            named => NAMES
                .iter()
                .find(|(status, ..)| *status == named)
                .map_or(-1000, |(_, number, _)| *number),
        }
    }
}

impl From<i32> for ExitStatus {
    fn from(number: i32) -> Self {
        if number >= 0 {
            return Self::Exited(number);
        }
        NAMES
            .iter()
            .find(|(_, known, _)| *known == number)
            .map_or(Self::Other(number), |(status, ..)| *status)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(status, ..)| status == self) {
            Some((.., name)) => f.pad(name),
            None => f.pad(&self.number().to_string()),
        }
    }
}

impl FromStr for ExitStatus {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if let Ok(number) = text.parse::<i32>() {
            return Ok(number.into());
        }
        let named = NAMES.iter().find(|(.., name)| *name == text);
        named.map(|(status, ..)| *status).ok_or_else(|| {
            let mut names = vec!["a number"];
            names.extend(NAMES.iter().map(|(.., name)| *name));
            BadName::new(text, "exit status", &names)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_numbers_and_names_round_trip() {
        for number in (-1001..=300).chain([i32::MIN, i32::MAX]) {
            let status = ExitStatus::from(number);
            assert_eq!(status.number(), number);
            assert_eq!(status.to_string().parse(), Ok(status));
            assert_eq!(number.to_string().parse(), Ok(status));
        }
        assert_eq!(ExitStatus::from(-102).to_string(), "PREEMPTED");
        assert_eq!(ExitStatus::from(137).to_string(), "137");
        assert!(ExitStatus::from(0).is_success());
        assert!("FINE".parse::<ExitStatus>().is_err());
    }
}
