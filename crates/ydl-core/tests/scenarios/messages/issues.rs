//! Issues of invalid jobs: all at once, each with a hint.

use crate::builder::builder as plain;
use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use ydl_core::{
    Framework, JobSpec, JobSpecBuilder, RoleName, Span,
    spec::{Command, Completion, File, MemoryGrowth, Output, RestartScope, RoleSpec},
};

fn role(name: &str) -> RoleSpec {
    plain(Framework::None, &[(name, 2)]).roles.remove(0)
}

fn builder() -> JobSpecBuilder {
    plain(Framework::None, &[("worker", 2)])
}

/// Spoils a valid builder and compares what is said about it.
pub fn check(spoil: impl Fn(&mut JobSpecBuilder), expected: Expect) {
    let mut builder = builder();
    spoil(&mut builder);
    let said = match builder.build() {
        Ok(_) => "fine".to_string(),
        Err(complaints) => {
            let lines = complaints.iter().map(|complaint| match &complaint.hint {
                Some(hint) => format!("{complaint}; hint: {hint}"),
                None => complaint.to_string(),
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    expected.assert_eq(&said);
}

#[test]
fn a_plain_job_is_valid() {
    check(|_| {}, expect!["fine"]);
}

#[test]
fn all_issues_are_reported_at_once() {
    check(
        |builder| {
            builder.name = String::new();
            builder.roles.clear();
            builder.ports.first = 0;
        },
        expect![[r#"
            `name`: the name is empty
            `roles`: the job has no roles; hint: name at least one, such as `worker`
            `ports`: `0-32767` is not a range of ports; hint: write it as `20000-32767`"#]],
    );
}

#[test]
fn names_are_short_and_plain() {
    check(
        |builder| builder.name = "my job".into(),
        expect![
            "`name`: invalid character ` ` in a name; hint: use letters from a to z, digits, `-`, `_` and `.`"
        ],
    );
    check(
        |builder| builder.name = "-job".into(),
        expect!["`name`: `-job` does not begin with a letter or digit"],
    );
    check(
        |builder| builder.name = "j".repeat(65),
        expect!["`name`: the name has 65 characters; the maximum is 64"],
    );
    check(
        |builder| builder.roles[0].name = RoleName::from("wörker"),
        expect![
            "`roles.wörker`: invalid character `ö` in a name; hint: use letters from a to z, digits, `-`, `_` and `.`"
        ],
    );
}

#[test]
fn roles_are_unique_and_have_commands() {
    check(
        |builder| builder.roles.push(role("worker")),
        expect!["`roles.worker`: duplicate role `worker`"],
    );
    check(
        |builder| builder.roles[0].instances = 0,
        expect![
            "`roles.worker.instances`: a role of 0 instances does nothing; hint: leave the role out, or give it at least one instance"
        ],
    );
    check(
        |builder| builder.roles[0].instances = 1_000_000,
        expect![
            "`roles`: the job has 1000000 tasks; at most 20000 are possible; hint: lower `instances`"
        ],
    );
    check(
        |builder| builder.roles[0].command = Command::Program(Vec::new()),
        expect![
            "`roles.worker.run`: role `worker` has no command; hint: set `run: python train.py`"
        ],
    );
    check(
        |builder| builder.roles[0].command = Command::Shell("  ".into()),
        expect![
            "`roles.worker.run`: role `worker` has no command; hint: set `run: python train.py`"
        ],
    );
}

#[test]
fn a_role_has_memory_and_vcores() {
    check(
        |builder| builder.roles[0].resources.memory_mib = 0,
        expect!["`roles.worker.memory`: a task needs memory; hint: such as `1 GiB`"],
    );
    check(
        |builder| builder.roles[0].resources.vcores = 0,
        expect!["`roles.worker.vcores`: a task needs at least 1 vcore"],
    );
    check(
        |builder| {
            builder.roles[0].memory_growth = Some(MemoryGrowth { percent: 0, max_mib: 512 });
        },
        expect![[r#"
            `roles.worker.memory_growth`: growing by 0 percent changes nothing
            `roles.worker.memory_growth`: the maximum size is smaller than the initial size"#]],
    );
}

#[test]
fn dependencies_exist_and_have_no_cycle() {
    let two = |builder: &mut JobSpecBuilder| {
        let mut other = builder.roles[0].clone();
        other.name = "server".into();
        builder.roles.push(other);
    };
    check(
        |builder| {
            two(builder);
            builder.roles[0].depends_on = vec!["sever".into()];
        },
        expect![
            "`roles.worker.depends_on`: the job has no role `sever`; hint: the roles are `worker`, `server`"
        ],
    );
    check(
        |builder| {
            two(builder);
            builder.roles[0].depends_on = vec!["server".into()];
            builder.roles[1].depends_on = vec!["worker".into()];
        },
        expect![[r#"
            `roles.worker.depends_on`: role `worker` depends on itself; hint: leave one of them out
            `roles.server.depends_on`: role `server` depends on itself; hint: leave one of them out"#]],
    );
    check(
        |builder| {
            two(builder);
            builder.gang.together = true;
            builder.roles[0].depends_on = vec!["server".into()];
        },
        expect![
            "`roles.worker.depends_on`: tasks of this job start together, so no role can depend on another; hint: leave it out, or set `gang: false`"
        ],
    );
    check(
        |builder| {
            two(builder);
            builder.gang.together = false;
            builder.roles[0].depends_on = vec!["server".into()];
            builder.roles[1].restart.scope = RestartScope::Job;
        },
        expect![
            "`roles.server.restart.scope`: a failure would restart all roles at once, but some depend on others; hint: set it to `task` or `role`"
        ],
    );
    // `ALL_MAY_FAIL` tolerates the failure of every task.
    check(|builder| builder.roles[0].tolerate = RoleSpec::ALL_MAY_FAIL, expect!["fine"]);
}

#[test]
fn not_all_tasks_may_fail() {
    check(
        |builder| builder.roles[0].tolerate = 2,
        expect![
            "`roles.worker.tolerate`: all 2 tasks may fail and the job would still succeed; hint: lower `tolerate`, or make the role a service"
        ],
    );
    check(
        |builder| {
            builder.roles[0].tolerate = 2;
            builder.roles[0].completion = Completion::Service;
        },
        expect!["fine"],
    );
}

#[test]
fn timeouts_and_backoffs_are_valid() {
    check(
        |builder| builder.roles[0].restart.backoff.initial = Span::hours(1),
        expect!["`roles.worker.restart.backoff`: the initial wait (1h) exceeds the maximum (0s)"],
    );
    check(
        |builder| builder.gang.backoff.initial = Span::hours(1),
        expect!["`gang.backoff`: the initial wait (1h) exceeds the maximum (1m)"],
    );
    check(
        |builder| builder.timeouts.join = Span(0),
        expect!["`timeouts.join`: a timeout of 0 can never be met"],
    );
    check(
        |builder| builder.timeouts.run = Some(Span(0)),
        expect!["`timeouts.run`: a job of 0 seconds can never run"],
    );
    check(
        |builder| builder.timeouts.heartbeat = Span(999),
        expect![
            "`timeouts.heartbeat`: a healthy agent may pause for up to a second; hint: the minimum is 1s, 60s is usual"
        ],
    );
}

#[test]
fn ports_are_a_range_and_have_names() {
    check(
        |builder| {
            builder.ports.first = 10;
            builder.ports.last = 9;
        },
        expect!["`ports`: `10-9` is not a range of ports; hint: write it as `20000-32767`"],
    );
    let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    check(
        |builder| builder.roles[0].ports = named(&["a b", "web", "web"]),
        expect![[r#"
            `roles.worker.ports`: invalid port name `a b`; hint: use letters from a to z, digits and `_`
            `roles.worker.ports`: duplicate port `web`"#]],
    );
}

#[test]
fn files_and_outputs_stay_in_the_tasks_directory() {
    let file = |name: &str| File { name: name.into(), source: "/tmp/x".into(), ..File::default() };
    check(
        |builder| builder.files = vec![file("a"), file("a"), file("..")],
        expect![[r#"
            `files`: two files have the name `a` in a task's directory; hint: rename one: `files: [{model.py: other/model.py}]`
            `files`: `..` is not a file name"#]],
    );
    let without = |pattern: &str| File { ignore: vec![pattern.into()], ..file("a") };
    check(
        |builder| builder.files = vec![without("/"), File { name: "b".into(), ..without("!keep") }],
        expect![[r#"
            `files.a.ignore`: a pattern is empty
            `files.b.ignore`: `!keep` would include files again, which is not supported; hint: name the files to leave out"#]],
    );
    let output = |from: &str, to: &str| Output::new(from, to);
    check(
        |builder| {
            builder.outputs = vec![
                output("/etc", "/out/{role}-{index}"),
                output("a/../..", "/other/{role}-{index}"),
                output("m/", ""),
            ];
        },
        expect![[r#"
            `outputs`: `/etc` is not below the task's directory; hint: name a path relative to where the program runs
            `outputs`: `a/../..` is not below the task's directory; hint: name a path relative to where the program runs
            `outputs`: `m/` has no destination"#]],
    );
    check(
        |builder| {
            builder.outputs = vec![output("a", "/out"), output("b", "/out"), output("c/", "/out")]
        },
        expect![[r#"
            `outputs.a`: 2 tasks would write `a` to the same destination `/out`; hint: put `{role}` and `{index}` into `/out`, or take it from one task with `from: worker:0`; a directory whose files have different names ends in `/`
            `outputs.b`: another output has the same destination `/out`; hint: give one of them another name; a directory of both ends in `/`
            `outputs.b`: 2 tasks would write `b` to the same destination `/out`; hint: put `{role}` and `{index}` into `/out`, or take it from one task with `from: worker:0`; a directory whose files have different names ends in `/`"#]],
    );
}

#[test]
fn variables_do_not_use_reserved_names() {
    let set = |name: &str| BTreeMap::from([(name.to_string(), String::new())]);
    check(
        |builder| builder.env = set("YDL_JOB"),
        expect![
            "`env`: `YDL_JOB`: names beginning with YDL_ are ydl's own; hint: choose another name"
        ],
    );
    check(
        |builder| builder.roles[0].env = set("a=b"),
        expect!["`roles.worker.env`: invalid variable name `a=b`"],
    );
    check(|builder| builder.env = set(""), expect!["`env`: invalid variable name ``"]);
}

#[test]
fn a_deserialized_specification_is_validated() {
    let good = serde_json::to_string(&builder().build().unwrap()).unwrap();
    assert!(serde_json::from_str::<JobSpec>(&good).is_ok());
    let bad = good.replace("\"instances\":2", "\"instances\":0");
    let error = serde_json::from_str::<JobSpec>(&bad).unwrap_err().to_string();
    assert_eq!(error, "`roles.worker.instances`: a role of 0 instances does nothing");
}
