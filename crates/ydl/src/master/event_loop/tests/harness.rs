//! Job, grants and agent messages of the event loop's tests. The benchmark `agents` includes this file, too.

use ydl_core::{
    Asks, ContainerId, Endpoint, Grant, JobSpec, JobSpecBuilder, NodeName, ProgramExit, RoleName,
    spec::{Command, Gang, Resources, Restart, RestartScope, RoleSpec},
    time::Span,
};
use ydl_proto::messages::{AgentReport, Sync};

/// Returns a job with one role of that many tasks, which restart together.
pub fn job_spec(instances: u32) -> JobSpec {
    let role = RoleSpec {
        name: RoleName::from("worker"),
        instances,
        resources: Resources { memory_mib: 1, vcores: 1, ..Resources::default() },
        command: Command::Program(vec!["true".to_owned()]),
        restart: Restart { scope: RestartScope::Job, ..Restart::default() },
        ..RoleSpec::default()
    };
    let draft = JobSpecBuilder {
        name: "paper".to_owned(),
        roles: vec![role],
        gang: Gang {
            together: true,
            retries: 0,
            backoff: Restart::default().backoff,
            settle: Span::seconds(2),
            ..Gang::default()
        },
        ..JobSpecBuilder::default()
    };
    draft.build().expect("the draft above is valid")
}

/// Returns the id of the `n`th container.
pub fn container(n: u32) -> ContainerId {
    ContainerId::from(format!("c{n}"))
}

/// Grants everything asked for. `granted` counts the containers of all calls.
pub fn grant_all(asks: Asks, granted: &mut u32) -> Vec<Grant> {
    let mut grants = Vec::new();
    for ask in asks.asks {
        for _ in 0..ask.count {
            grants.push(Grant {
                container: container(*granted),
                role: ask.role.clone(),
                node: NodeName::from("paper"),
                resources: ask.resources.clone(),
            });
            *granted += 1;
        }
    }
    grants
}

/// Returns the report of an agent that is ready for a round.
pub fn ready(round: u32) -> AgentReport {
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), ports: Default::default() };
    AgentReport::Ready { round, endpoint }
}

/// Returns the report of a program that exited with 0.
pub fn exited(round: u32) -> AgentReport {
    let exit = ProgramExit { code: Some(0), ..ProgramExit::default() };
    AgentReport::Exited { round, exit }
}

/// Returns the message of an agent that has that order.
pub fn sync(reports: Vec<AgentReport>, order: u64) -> Sync {
    Sync { reports, order, tokens: 0, last_request: 0, usage: None }
}
