//! A small valid job, for tests that spoil it or look at one thing in it.

use std::collections::BTreeMap;
use ydl_core::{
    Framework, JobSpecBuilder, RoleName, Span,
    spec::{
        Backoff, Command, Environment, Gang, NodeExclusion, PortRange, Resources, Restart,
        RoleSpec, Timeouts,
    },
};

/// Roles of so many tasks, as the framework has them unless the user says otherwise.
pub fn builder(framework: Framework, roles: &[(&str, u32)]) -> JobSpecBuilder {
    let names: Vec<_> = roles.iter().map(|(name, _)| *name).collect();
    let role = |(name, instances): &(&str, u32)| {
        let defaults = framework.role_defaults(name, &names);
        RoleSpec {
            name: RoleName::from(*name),
            instances: *instances,
            processes: 1,
            elastic: None,
            resources: Resources { memory_mib: 1024, vcores: 1, ..Resources::default() },
            command: Command::Program(vec!["true".into()]),
            environment: None,
            env: BTreeMap::new(),
            restart: Restart {
                scope: defaults.scope,
                limit: 0,
                backoff: Backoff { initial: Span(0), max: Span(0) },
                window: None,
            },
            completion: defaults.completion,
            tolerate: 0,
            memory_growth: None,
            ports: Vec::new(),
            placement: Default::default(),
            depends_on: Vec::new(),
        }
    };
    JobSpecBuilder {
        name: "job".into(),
        framework,
        cluster_flags: false,
        environment: Environment::System,
        files: Vec::new(),
        roles: roles.iter().map(role).collect(),
        inputs: Vec::new(),
        disk_mib: None,
        outputs: Vec::new(),
        env: BTreeMap::new(),
        gang: Gang {
            together: framework.starts_together(),
            hold: Span::seconds(30),
            retries: 1,
            backoff: Backoff { initial: Span::seconds(5), max: Span::seconds(60) },
            settle: Span::seconds(2),
            reform: Default::default(),
        },
        timeouts: Timeouts::default(),
        node_exclusion: NodeExclusion::default(),
        ports: PortRange::default(),
        cluster_options: Default::default(),
    }
}
