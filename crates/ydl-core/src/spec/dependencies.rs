//! Validation of dependencies between roles.

use super::{JobSpecBuilder, RestartScope, RoleSpec, validate::SpecIssues};
use crate::id::RoleName;
use alloc::{borrow::ToOwned, collections::BTreeSet, format, vec::Vec};

pub(super) fn check(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    for role in builder.roles.iter().filter(|role| !role.depends_on.is_empty()) {
        let key = format!("roles.{}.depends_on", role.name);
        let known = |name: &RoleName| builder.roles.iter().any(|other| other.name == *name);
        if let Some(unknown) = role.depends_on.iter().find(|name| !known(name)) {
            let there: Vec<_> = builder.roles.iter().map(|it| it.name.as_str()).collect();
            let hint = format!("the roles are `{}`", there.join("`, `"));
            all.add(&key, format!("the job has no role `{unknown}`"), &hint);
        } else if waits_for_itself(builder, role) {
            let message = format!("role `{}` depends on itself", role.name);
            all.add(&key, message, "leave one of them out");
        }
        if builder.gang.together {
            let message = "tasks of this job start together, so no role can depend on another";
            all.add(&key, message.to_owned(), "leave it out, or set `gang: false`");
        }
    }
    let mut roles = builder.roles.iter();
    if let Some(role) = roles.find(|role| role.restart.scope == RestartScope::Job)
        && builder.roles.iter().any(|role| !role.depends_on.is_empty())
        && !builder.gang.together
    {
        let message = "a failure would restart all roles at once, but some depend on others";
        let key = format!("roles.{}.restart.scope", role.name);
        all.add(&key, message.to_owned(), "set it to `task` or `role`");
    }
}

fn waits_for_itself(builder: &JobSpecBuilder, role: &RoleSpec) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&RoleName> = role.depends_on.iter().collect();
    while let Some(name) = next.pop() {
        if *name == role.name {
            return true;
        }
        if seen.insert(name) {
            let named = builder.roles.iter().filter(|other| other.name == *name);
            next.extend(named.flat_map(|other| &other.depends_on));
        }
    }
    false
}
