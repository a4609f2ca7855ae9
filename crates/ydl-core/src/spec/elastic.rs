//! Validation of elastic roles.

use super::{Completion, JobSpecBuilder, RestartScope, RoleSpec, validate::SpecIssues};
use alloc::{borrow::ToOwned, format};

pub(super) fn check(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    for role in &builder.roles {
        if role.elastic.is_some() {
            of_role(all, builder, role);
        }
    }
}

fn of_role(all: &mut SpecIssues, builder: &JobSpecBuilder, role: &RoleSpec) {
    let Some(range) = role.elastic else {
        return;
    };
    let key = format!("roles.{}", role.name);
    let size = format!("{key}.instances");
    if range.min == 0 {
        let message = "a round of 0 tasks does nothing".to_owned();
        all.add(&size, message, "the minimum is `min: 1`");
    }
    if range.min > range.max {
        let message = format!("`min` ({}) exceeds `max` ({})", range.min, range.max);
        all.add(&size, message, "");
    } else if !(range.min..=range.max).contains(&role.instances) {
        let message = format!(
            "`start` is {}, which is not between {} and {}",
            role.instances, range.min, range.max
        );
        all.add(&size, message, "");
    }
    // The framework has reported its own requirement already.
    if !builder.gang.together && !builder.framework.starts_together() {
        let message =
            format!("role `{}` is elastic, and its tasks do not start together", role.name);
        let hint = "set `gang: true`; tasks that start on their own need no range, `ydl scale` changes their number";
        all.add("gang", message, hint);
    }
    if role.restart.scope == RestartScope::Task {
        let message = format!(
            "tasks of the elastic role `{}` cannot restart alone: a restart changes the members of the round",
            role.name
        );
        all.add(&format!("{key}.restart.scope"), message, "set it to `job`");
    }
    // Each role would start with its ready tasks, but must know all members of the other.
    let mut others = builder.roles.iter().filter(|other| other.name != role.name);
    let other = others.find(|other| other.elastic.is_some());
    if let (RestartScope::Role, Some(other)) = (role.restart.scope, other) {
        let message = format!(
            "the roles `{}` and `{}` are both elastic, and would wait for each other's tasks",
            role.name, other.name
        );
        all.add(&format!("{key}.restart.scope"), message, "set it to `job`");
    }
    match role.completion {
        Completion::All | Completion::Primary => {}
        Completion::Any | Completion::Service | Completion::Follows | Completion::Sidecar => {
            let message = format!(
                "the elastic role `{}` is done when all members of its round are",
                role.name
            );
            let hint = "set it to `all` or `primary`";
            all.add(&format!("{key}.completion"), message, hint);
        }
    }
    if role.tolerate > 0 {
        let message =
            format!("the elastic role `{}` tolerates missing tasks by its `min`", role.name);
        let hint = "leave `tolerate` out, and lower `min`";
        all.add(&format!("{key}.tolerate"), message, hint);
    }
    let theirs = |roles: &[_]| match roles.is_empty() {
        true => true,
        false => roles.contains(&role.name),
    };
    let mut inputs = builder.inputs.iter();
    if let Some(input) = inputs.find(|input| input.form.is_split() && theirs(&input.roles)) {
        let message = format!(
            "its files are divided over the tasks of role `{}`, whose number changes",
            role.name
        );
        let hint = "give all files to every task, and let programs choose by `YDL_RANK` and `YDL_WORLD_SIZE`";
        all.add(&format!("inputs.{}", input.name), message, hint);
    }
}
