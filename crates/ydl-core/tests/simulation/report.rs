//! Exits of programs and reports of agents.

use std::collections::BTreeMap;
use ydl_core::{ContainerId, Endpoint, Event, ProgramExit};

/// Exit of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Code(i32),
    Signal(i32),
    /// Killed with its container.
    WithContainer,
}

/// Report of an agent.
#[derive(Clone, Debug)]
pub enum Report {
    Ready {
        round: u32,
    },
    Unready {
        node: bool,
    },
    Started {
        round: u32,
    },
    Exited {
        round: u32,
        exit: ProgramExit,
    },
    Saved {
        error: Option<String>,
    },
    /// The probe of a replica has another result.
    Probed {
        change: u32,
        serves: bool,
    },
}

impl Report {
    pub fn event(self, container: ContainerId) -> Event {
        match self {
            // The address is the container's name, so that checks can see the members.
            Report::Ready { round } => Event::Ready {
                endpoint: Endpoint { host: container.to_string(), ports: BTreeMap::new() },
                container,
                round,
            },
            Report::Unready { node } => {
                Event::SetupFailed { container, reason: "no port is free".into(), node_fault: node }
            }
            Report::Started { round } => Event::Started { container, round },
            Report::Exited { round, exit } => Event::Exited { container, round, exit },
            Report::Probed { change, serves: true } => Event::Served { container, change },
            Report::Probed { change, serves: false } => Event::Unserved { container, change },
            Report::Saved { error } => Event::AgentStopped { container, upload_error: error },
        }
    }
}
