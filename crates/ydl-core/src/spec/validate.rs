//! Validation of a job specification. Each issue names its key, so that job-file diagnostics can
//! point at the line.

use super::{
    Backoff, Command, Completion, JobSpecBuilder, Output, OutputScope, RoleSpec, dependencies,
    elastic, image, serve,
};
use crate::{id::RoleName, time::Span};
use alloc::{
    borrow::ToOwned,
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// Maximum number of tasks of a job, without those that have ended.
pub const MAX_TASKS: u64 = 20_000;
/// Maximum number of processes of a task.
const MAX_PROCESSES: u32 = 64;
/// Maximum size of the variables of a task that is added to a running job.
const ADDED_ENV_BYTES_MAX: usize = 64 << 10;
const EMPTY_ROLE_HINT: &str = "leave the role out, or give it at least one instance";
/// Maximum length of a job's or role's name.
const MAX_NAME_LEN: usize = 64;
/// Minimum heartbeat timeout that a healthy agent can meet.
const MIN_HEARTBEAT_TIMEOUT_MS: u64 = 1_000;
/// Minimum interval between two uploads of an output.
const MIN_UPLOAD_INTERVAL: Span = Span::seconds(1);

/// An issue in a job specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecIssue {
    /// Key in the job file, such as `roles.worker.instances`.
    pub key: String,
    /// Description of the issue.
    pub message: String,
    /// Suggested fix.
    pub hint: Option<String>,
}

impl fmt::Display for SpecIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.message)
    }
}

pub(super) struct SpecIssues(Vec<SpecIssue>);

impl SpecIssues {
    pub(super) fn add(&mut self, key: &str, message: String, hint: &str) {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        self.0.push(SpecIssue { key: key.to_owned(), message, hint });
    }
}

/// Checks a specification, of whose tasks so many have ended.
pub(super) fn check(builder: &JobSpecBuilder, ended: u64) -> Vec<SpecIssue> {
    let mut all = SpecIssues(Vec::new());
    name(&mut all, "name", &builder.name);
    if builder.roles.is_empty() {
        all.add("roles", "the job has no roles".to_owned(), "name at least one, such as `worker`");
    }
    let mut names = BTreeSet::new();
    for spec in &builder.roles {
        let key = format!("roles.{}", spec.name);
        if !names.insert(spec.name.clone()) {
            all.add(&key, format!("duplicate role `{}`", spec.name), "");
        }
        role(&mut all, &key, spec);
        // A role whose tasks start on their own may get its first task later.
        let all_empty = builder.roles.iter().all(|other| other.instances == 0);
        if spec.serve.is_some() {
            // It may start without replicas.
        } else if spec.instances == 0 && (builder.gang.together || all_empty) {
            let hint = EMPTY_ROLE_HINT;
            let message = "a role of 0 instances does nothing".to_owned();
            all.add(&format!("{key}.instances"), message, hint);
        } else if spec.instances == 0 && ends_at_once(builder, spec) {
            let message = "the outcome of the job depends on a role of 0 instances".to_owned();
            all.add(&format!("{key}.instances"), message, EMPTY_ROLE_HINT);
        }
    }
    strict_placement(&mut all, builder);
    let tasks: u64 = builder.roles.iter().map(|role| u64::from(role.max_instances())).sum();
    let tasks = tasks.saturating_sub(ended);
    if tasks > MAX_TASKS {
        let message = format!("the job has {tasks} tasks; at most {MAX_TASKS} are possible");
        all.add("roles", message, "lower `instances`");
    }
    dependencies::check(&mut all, builder);
    elastic::check(&mut all, builder);
    serve::check(&mut all, builder);
    files(&mut all, builder);
    image::check(&mut all, builder);
    inputs(&mut all, builder);
    outputs(&mut all, builder);
    environment(&mut all, "env", builder.env.keys());
    timeouts(&mut all, builder);
    backoff(&mut all, "gang.backoff", builder.gang.backoff);
    if builder.ports.first == 0 || builder.ports.first > builder.ports.last {
        let message =
            format!("`{}-{}` is not a range of ports", builder.ports.first, builder.ports.last);
        all.add("ports", message, "write it as `20000-32767`");
    }
    all.0.extend(builder.framework.issues(builder));
    all.0
}

/// Returns true if the job would end at once or never, since it waits for a role without tasks.
fn ends_at_once(builder: &JobSpecBuilder, empty: &RoleSpec) -> bool {
    let others_decide = || {
        let mut roles = builder.roles.iter();
        roles.any(|role| role.completion == Completion::All && role.instances > 0)
    };
    match empty.completion {
        Completion::Primary | Completion::Any => true,
        Completion::All => {
            let decides =
                |role: &RoleSpec| matches!(role.completion, Completion::Primary | Completion::Any);
            !others_decide() && !builder.roles.iter().any(decides)
        }
        Completion::Service | Completion::Follows | Completion::Sidecar => false,
    }
}

fn name(all: &mut SpecIssues, key: &str, name: &str) {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() {
        all.add(key, "the name is empty".to_owned(), "");
    } else if name.len() > MAX_NAME_LEN {
        let message =
            format!("the name has {} characters; the maximum is {MAX_NAME_LEN}", name.len());
        all.add(key, message, "");
    } else if let Some(odd) = name.chars().find(|c| !fits(*c)) {
        let message = format!("invalid character `{odd}` in a name");
        all.add(key, message, "use letters from a to z, digits, `-`, `_` and `.`");
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        all.add(key, format!("`{name}` does not begin with a letter or digit"), "");
    }
}

fn strict_placement(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    let is_constrained = |role: &RoleSpec| {
        role.placement.max_per_node.is_some() || !role.placement.attributes.is_empty()
    };
    let constrained = builder.roles.iter().find(|role| is_constrained(role));
    for role in builder.roles.iter().filter(|role| role.placement.strict) {
        let key = format!("roles.{}.placement.strict", role.name);
        if role.placement.nodes.is_empty() && role.placement.racks.is_empty() {
            let message = "no `nodes` or `racks` are named".to_owned();
            all.add(&key, message, "name them, or leave `strict` out");
        } else if let Some(other) = constrained {
            let message = format!(
                "`nodes` and `racks` have no effect in a job with `max_per_node` or `attributes`, as in role `{}`",
                other.name
            );
            all.add(&key, message, "use one kind of placement");
        }
    }
}

fn role(all: &mut SpecIssues, key: &str, role: &RoleSpec) {
    name(all, key, role.name.as_str());
    if !(1..=MAX_PROCESSES).contains(&role.processes) {
        all.add(
            &format!("{key}.processes"),
            format!("{} processes are not possible", role.processes),
            &format!("a task has from 1 to {MAX_PROCESSES}"),
        );
    }
    if role.resources.memory_mib == 0 {
        all.add(&format!("{key}.memory"), "a task needs memory".to_owned(), "such as `1 GiB`");
    }
    if role.resources.vcores == 0 {
        all.add(&format!("{key}.vcores"), "a task needs at least 1 vcore".to_owned(), "");
    }
    let empty = match &role.command {
        Command::Program(words) => words.first().is_none_or(|word| word.is_empty()),
        Command::Shell(script) => script.trim().is_empty(),
    };
    if empty {
        let hint = "set `run: python train.py`";
        all.add(&format!("{key}.run"), format!("role `{}` has no command", role.name), hint);
    }
    environment(all, &format!("{key}.env"), role.env.keys());
    backoff(all, &format!("{key}.restart.backoff"), role.restart.backoff);
    let slip = role.tolerate >= role.instances.max(1) && role.tolerate != RoleSpec::ALL_MAY_FAIL;
    if slip && !role.is_auxiliary() {
        let message =
            format!("all {} tasks may fail and the job would still succeed", role.instances);
        all.add(
            &format!("{key}.tolerate"),
            message,
            "lower `tolerate`, or make the role a service",
        );
    }
    if let Some(growth) = role.memory_growth {
        let key = format!("{key}.memory_growth");
        if growth.percent == 0 {
            all.add(&key, "growing by 0 percent changes nothing".to_owned(), "");
        }
        if growth.max_mib < role.resources.memory_mib {
            all.add(&key, "the maximum size is smaller than the initial size".to_owned(), "");
        }
    }
    let mut ports = BTreeSet::new();
    for port in &role.ports {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if port.is_empty() || !port.chars().all(fits) {
            let message = format!("invalid port name `{port}`");
            all.add(&format!("{key}.ports"), message, "use letters from a to z, digits and `_`");
        }
        if !ports.insert(port) {
            all.add(&format!("{key}.ports"), format!("duplicate port `{port}`"), "");
        }
    }
}

fn backoff(all: &mut SpecIssues, key: &str, backoff: Backoff) {
    if backoff.initial > backoff.max {
        let message =
            format!("the initial wait ({}) exceeds the maximum ({})", backoff.initial, backoff.max);
        all.add(key, message, "");
    }
}

fn files(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    let mut names = BTreeSet::new();
    for file in &builder.files {
        if !names.insert(&file.name) {
            let message = format!("two files have the name `{}` in a task's directory", file.name);
            all.add("files", message, "rename one: `files: [{model.py: other/model.py}]`");
        }
        if file.name.is_empty() || file.name == "." || file.name == ".." || file.name.contains('/')
        {
            all.add("files", format!("`{}` is not a file name", file.name), "");
        }
        let key = format!("files.{}.ignore", file.name);
        if file.ignore.iter().any(|pattern| pattern.trim_matches('/').is_empty()) {
            all.add(&key, "a pattern is empty".to_owned(), "");
        }
        if let Some(pattern) = file.ignore.iter().find(|pattern| pattern.starts_with('!')) {
            let message = format!("`{pattern}` would include files again, which is not supported");
            all.add(&key, message, "name the files to leave out");
        }
    }
}

fn inputs(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    let mut names: BTreeSet<&str> = builder.files.iter().map(|file| &*file.name).collect();
    let mut variables = BTreeSet::new();
    for input in &builder.inputs {
        let key = format!("inputs.{}", input.name);
        if !names.insert(&input.name) {
            let message =
                format!("the name `{}` is already used in a task's directory", input.name);
            all.add(&key, message, "give one of them another name");
        } else if !variables.insert(input.env_variable()) {
            let message = format!("another input has the variable `{}`", input.env_variable());
            all.add(&key, message, "give one of them another name");
        }
        let name = &input.name;
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            all.add(&key, format!("invalid input name `{name}`"), "");
        }
        if input.source.is_empty() {
            all.add(&key, "the source is empty".to_owned(), "");
        }
        for role in &input.roles {
            if !builder.roles.iter().any(|known| known.name == *role) {
                let message = format!("the job has no role `{role}`");
                all.add(&format!("{key}.roles"), message, &known(builder));
            }
        }
    }
}

fn outputs(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    let mut names = BTreeSet::new();
    for output in &builder.outputs {
        let key = format!("outputs.{}", output.from);
        if is_one_name(output) && !output.to.is_empty() && !names.insert(&output.to) {
            let message = format!("another output has the same destination `{}`", output.to);
            let hint = "give one of them another name; a directory of both ends in `/`";
            all.add(&key, message, hint);
        }
        let outside =
            output.from.starts_with('/') || output.from.split('/').any(|part| part == "..");
        if output.from.is_empty() || outside {
            let message = format!("`{}` is not below the task's directory", output.from);
            let hint = "name a path relative to where the program runs";
            all.add("outputs", message, hint);
        }
        if output.to.is_empty() {
            all.add("outputs", format!("`{}` has no destination", output.from), "");
        }
        let from = output.from.trim_end_matches('/');
        if from.rsplit_once('/').is_some_and(|(dir, _)| dir.contains('*')) {
            let message = format!("`{}` has a `*` before its last part", output.from);
            let hint =
                "only the last part may hold one; name the directory above it to send all of it";
            all.add(&key, message, hint);
        }
        if output.every.is_some_and(|span| span < MIN_UPLOAD_INTERVAL) {
            let message = "the minimum interval is one second".to_owned();
            all.add(&format!("{key}.every"), message, "5m is usual");
        }
        match &output.scope {
            OutputScope::All => {}
            OutputScope::Role(role) => {
                if !builder.roles.iter().any(|known| known.name == *role) {
                    let message = format!("the job has no role `{role}`");
                    all.add(&format!("{key}.from"), message, &known(builder));
                }
            }
            OutputScope::Task(task) => {
                let role = builder.roles.iter().find(|role| role.name == task.role);
                if role.is_none_or(|role| task.index >= role.max_instances()) {
                    let message = format!("the job has no task `{task}`");
                    all.add(&format!("{key}.from"), message, &known(builder));
                }
            }
        }
        if let Some(message) = one_name(builder, output) {
            let hint = format!(
                "put `{{role}}` and `{{index}}` into `{}`, or take it from one task with `from: {}:0`; a directory whose files have different names ends in `/`",
                output.to,
                builder.roles.first().map_or("worker", |role| role.name.as_str()),
            );
            all.add(&key, message, &hint);
        }
    }
}

/// Describes the tasks of the job.
fn known(builder: &JobSpecBuilder) -> String {
    let each = |role: &RoleSpec| {
        format!("`{}:0` to `{0}:{}`", role.name, role.max_instances().saturating_sub(1))
    };
    let roles: Vec<_> = builder.roles.iter().map(each).collect();
    format!("its tasks are {}", roles.join(", "))
}

/// Returns true if the output is a single file with the name of its destination. Contents of
/// directories and patterns go below it.
fn is_one_name(output: &Output) -> bool {
    !output.from.ends_with('/') && !output.from.contains('*') && !output.to.ends_with('/')
}

/// Describes a destination shared by several tasks. Contents of directories and patterns are not
/// known in advance.
fn one_name(builder: &JobSpecBuilder, output: &Output) -> Option<String> {
    if !is_one_name(output) {
        return None;
    }
    if matches!(output.scope, OutputScope::Task(_)) {
        return None;
    }
    let theirs = |role: &&RoleSpec| output.is_produced_by(role, 0);
    let roles: Vec<&RoleSpec> = builder.roles.iter().filter(theirs).collect();
    let tasks: u64 = roles.iter().map(|role| u64::from(role.max_instances())).sum();
    let (by_role, by_index) = (
        output.to.contains("{role}") || roles.len() < 2,
        output.to.contains("{index}") || roles.iter().all(|role| role.max_instances() < 2),
    );
    if tasks < 2 || (by_role && by_index) {
        return None;
    }
    Some(format!(
        "{tasks} tasks would write `{}` to the same destination `{}`",
        output.from, output.to
    ))
}

/// Checks the variables of a task that is added to a running job.
pub(crate) fn check_added_env(role: &RoleName, env: &BTreeMap<String, String>) -> Vec<SpecIssue> {
    let mut all = SpecIssues(Vec::new());
    let key = format!("roles.{role}.env");
    environment(&mut all, &key, env.keys());
    for (name, _) in env.iter().filter(|(_, value)| value.contains('\0')) {
        all.add(&key, format!("the value of `{name}` has a NUL byte"), "");
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ADDED_ENV_BYTES_MAX {
        let message = format!(
            "the variables of the task have {bytes} bytes, and the maximum is {ADDED_ENV_BYTES_MAX}"
        );
        all.add(&key, message, "put large values into the key-value store");
    }
    all.0
}

fn environment<'a>(all: &mut SpecIssues, key: &str, names: impl Iterator<Item = &'a String>) {
    for name in names {
        if name.is_empty() || name.contains(['=', '\0']) {
            all.add(key, format!("invalid variable name `{name}`"), "");
        } else if name.starts_with("YDL_") {
            let message = format!("`{name}`: names beginning with YDL_ are ydl's own");
            all.add(key, message, "choose another name");
        }
    }
}

fn timeouts(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    let d = &builder.timeouts;
    let named = [
        ("allocation", d.allocation),
        ("launch", d.launch),
        ("join", d.join),
        ("fetch", d.fetch),
        ("start", d.start),
        ("follow", d.follow),
        ("stop", d.stop),
        ("upload", d.upload),
    ];
    for (name, span) in named {
        if span.0 == 0 {
            let key = format!("timeouts.{name}");
            all.add(&key, "a timeout of 0 can never be met".to_string(), "");
        }
    }
    if d.run.is_some_and(|span| span.0 == 0) {
        all.add("timeouts.run", "a job of 0 seconds can never run".to_string(), "");
    }
    if d.heartbeat.0 < MIN_HEARTBEAT_TIMEOUT_MS {
        let message = "a healthy agent may pause for up to a second".to_string();
        all.add("timeouts.heartbeat", message, "the minimum is 1s, 60s is usual");
    }
}
