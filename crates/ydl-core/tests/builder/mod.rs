//! A small valid job, for tests that spoil it or look at one thing in it.

use ydl_core::{
    Framework, JobSpecBuilder, RoleName, Span,
    spec::{Backoff, Command, Gang, Restart, RoleSpec},
};

/// Roles of so many tasks, as the framework has them unless the user says otherwise.
pub fn builder(framework: Framework, roles: &[(&str, u32)]) -> JobSpecBuilder {
    let names: Vec<_> = roles.iter().map(|(name, _)| *name).collect();
    let role = |(name, instances): &(&str, u32)| {
        let defaults = framework.role_defaults(name, &names);
        RoleSpec {
            name: RoleName::from(*name),
            instances: *instances,
            command: Command::Program(vec!["true".into()]),
            restart: Restart {
                scope: defaults.scope,
                backoff: Backoff { initial: Span(0), max: Span(0) },
                ..Restart::default()
            },
            completion: defaults.completion,
            ..RoleSpec::default()
        }
    };
    JobSpecBuilder {
        name: "job".into(),
        framework,
        roles: roles.iter().map(role).collect(),
        gang: Gang {
            together: framework.starts_together(),
            hold: Span::seconds(30),
            retries: 1,
            backoff: Backoff { initial: Span::seconds(5), max: Span::seconds(60) },
            settle: Span::seconds(2),
            ..Gang::default()
        },
        ..JobSpecBuilder::default()
    }
}
