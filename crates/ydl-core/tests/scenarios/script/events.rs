//! Events in scenario scripts.

use super::spec::span;
use std::collections::BTreeMap;
use ydl_core::{
    Cause, ContainerExit, ContainerId, Endpoint, Event, Grant, NodeName, Outcome, ProgramExit,
    RoleName, Span,
    spec::{Command, Resources, RevisionSpec},
};

/// Parses an event. Agents report the round of their standing order, unless the line has another.
pub fn parse_event(words: &[&str], round: u32) -> Event {
    let at = |n: usize| words.get(n).copied().unwrap_or("");
    let rest = |n: usize| words.get(n..).unwrap_or_default().join(" ");
    let container = ContainerId::from(at(1));
    match words[0] {
        "nodes" => Event::NodesCounted { nodes: at(1).parse().unwrap() },
        "nodes-required" => {
            Event::NodesRequired { nodes: words[1..].iter().copied().map(NodeName::from).collect() }
        }
        "granted" => Event::Granted { grants: vec![grant(&words[1..])] },
        "launched" => Event::Launched { container },
        "launch-failed" => Event::LaunchFailed { container, reason: rest(2) },
        "ended" => Event::Ended { containers: rest(1).split(", ").map(ended).collect() },
        "preemption-warned" => Event::PreemptionWarned { container },
        "unsatisfiable" => Event::RequestUnsatisfiable { reason: rest(1) },
        "ready" => Event::Ready {
            round: at(2).parse().unwrap_or(round),
            endpoint: Endpoint { host: format!("host-of-{container}"), ports: BTreeMap::new() },
            container,
        },
        "setup-failed" | "node-fault" => {
            Event::SetupFailed { container, reason: rest(2), node_fault: at(0) == "node-fault" }
        }
        "started" => Event::Started { round: at(2).parse().unwrap_or(round), container },
        "exited" => {
            let (exit, own) = exit(&words[2..]);
            Event::Exited { round: own.unwrap_or(round), container, exit }
        }
        "uploaded" => {
            Event::AgentStopped { container, upload_error: words.get(2).map(|_| rest(2)) }
        }
        "missed" => Event::HeartbeatMissed { container },
        "resumed" => Event::HeartbeatResumed { container },
        "node-draining" => Event::NodeDraining {
            containers: words[2..].iter().copied().map(ContainerId::from).collect(),
            time: span(at(1)),
        },
        "served" => Event::Served { container, change: at(2).parse().unwrap_or(1) },
        "unserved" => Event::Unserved { container, change: at(2).parse().unwrap_or(2) },
        "drained" => Event::Drained { container, version: at(2).parse().unwrap() },
        "update" => Event::Updated {
            role: RoleName::from(at(1)),
            revision: at(2).parse().unwrap(),
            spec: Box::new(RevisionSpec {
                command: Command::Shell(format!("serve --model {}", at(2))),
                environment: None,
                env: BTreeMap::new(),
                inputs: Vec::new(),
            }),
            canary: at(3).strip_prefix("canary=").map(|percent| percent.parse().unwrap()),
        },
        "judge" => Event::Judged {
            role: RoleName::from(at(1)),
            revision: at(2).parse().unwrap(),
            good: at(3) == "good",
        },
        "undo" => Event::UndoRequested { role: RoleName::from(at(1)) },
        "scaled" => Event::Scaled {
            role: RoleName::from(at(1)),
            instances: at(2).parse().unwrap(),
            because: "little to do".into(),
            idle: words[3..].iter().map(|task| task.parse().unwrap()).collect(),
        },
        "wanted" => Event::Wanted { role: RoleName::from(at(1)) },
        "kill" => Event::KillRequested { by: at(1).into(), immediate: false },
        "kill-now" => Event::KillRequested { by: at(1).into(), immediate: true },
        "scale" => {
            Event::ScaleRequested { role: RoleName::from(at(1)), instances: at(2).parse().unwrap() }
        }
        "add" => {
            let variables = words.get(2..).unwrap_or_default().iter();
            let variables = variables.filter_map(|word| word.split_once('='));
            let env = variables.map(|(name, value)| (name.into(), value.into()));
            Event::TaskAddRequested { role: RoleName::from(at(1)), env: env.collect() }
        }
        "stop" => Event::TaskStopRequested { task: at(1).parse().unwrap() },
        "end" => {
            let outcome = match at(1) {
                "succeeded" => Outcome::Succeeded,
                _ => Outcome::Failed(Cause::Requested { reason: rest(2) }),
            };
            Event::EndRequested { outcome }
        }
        "recovered" => Event::MasterRecovered {
            live: words[1..].iter().copied().map(ContainerId::from).collect(),
        },
        other => panic!("no event `{other}`"),
    }
}

/// `c1 worker n1 1024`: node and memory may be left out.
pub fn grant(words: &[&str]) -> Grant {
    Grant {
        container: ContainerId::from(words[0]),
        role: RoleName::from(words[1]),
        node: NodeName::from(words.get(2).copied().unwrap_or("n1")),
        resources: Resources {
            memory_mib: words.get(3).map_or(1024, |it| it.parse().unwrap()),
            vcores: 1,
            ..Resources::default()
        },
    }
}

fn ended(text: &str) -> (ContainerId, ContainerExit) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| words[at].parse().unwrap();
    let end = match words[1] {
        "completed" => ContainerExit::Completed { status: words[2].parse().unwrap() },
        "memory" => ContainerExit::MemoryLimit { used_mib: number(2), limit_mib: number(3) },
        "preempted" => ContainerExit::Preempted,
        "lost" => ContainerExit::NodeLost,
        "fault" => ContainerExit::NodeFault { reason: words[2..].join(" ") },
        "released" => ContainerExit::Released,
        other => panic!("no end `{other}`"),
    };
    (ContainerId::from(words[0]), end)
}

/// `0`, `1`, `sig9`, `not-started`, then `container` where the container was signalled, `round=2` where it is not
/// the round of the standing order, `ran=3s`, and what it printed: `own-error` or `peer-loss`.
fn exit(words: &[&str]) -> (ProgramExit, Option<u32>) {
    let mut exit = ProgramExit { stderr_tail: "last words".into(), ..ProgramExit::default() };
    if let Some(signal) = words[0].strip_prefix("sig") {
        exit.signal = Some(signal.parse().unwrap());
    } else if words[0] == "not-started" {
        exit.not_started = Some("`trian.py` was not found".into());
    } else {
        exit.code = Some(words[0].parse().unwrap());
    }
    if words.contains(&"own-error") {
        exit.stderr_tail =
            "Traceback (most recent call last):\n  File \"train.py\"\nOSError: disk full".into();
    } else if words.contains(&"peer-loss") {
        exit.stderr_tail = "RuntimeError: Connection closed by peer".into();
    }
    let ran = words.iter().find_map(|word| word.strip_prefix("ran="));
    exit.ran = ran.map_or(Span(0), span);
    exit.container_signalled = words.contains(&"container");
    let port = words.iter().find_map(|word| word.strip_prefix("port="));
    exit.port_taken = port.map(|it| it.parse().unwrap());
    exit.outdated = words.contains(&"outdated");
    let round = words.iter().find_map(|word| word.strip_prefix("round="));
    (exit, round.map(|it| it.parse().unwrap()))
}
