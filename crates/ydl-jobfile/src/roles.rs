//! Reads and prints the roles.

use super::{
    diagnostic::{Diagnostic, Location},
    fields::{Map, Reader},
    formats::{Choice, Format, OneLine, SIZE, Scalar, count},
    keys::{INSTANCES, MEMORY_GROWTH, RESTART, ROLE},
    nearest::nearest,
    printer::{YamlValue, list, text},
    tree::{Key, Node, Value},
    units::Rejection,
    words::split_words,
};
use std::collections::BTreeSet;
use ydl_core::{
    Framework, JobSpecBuilder, RoleName, Span,
    framework::RoleDefaults,
    spec::{
        Backoff, Command, Completion, MAX_TASKS, MemoryGrowth, Range, Restart, RestartScope,
        RoleSpec,
    },
};

/// Scope of a restart.
pub(crate) const RESTART_SCOPE: Choice<RestartScope> = Choice(&[
    ("task", RestartScope::Task),
    ("role", RestartScope::Role),
    ("job", RestartScope::Job),
]);

/// Completion rule of a role.
pub(crate) const COMPLETION: Choice<Completion> = Choice(&[
    ("all", Completion::All),
    ("any", Completion::Any),
    ("primary", Completion::Primary),
    ("service", Completion::Service),
    ("follows", Completion::Follows),
    ("sidecar", Completion::Sidecar),
]);

/// Name of a role of the job.
pub(crate) const ROLE_NAME: Scalar<RoleName> = Scalar {
    kind: "role",
    python: "str",
    parse: |text, _| Ok(RoleName::from(text)),
    print: |role| text(role.as_str()),
};

/// Memory of a task; in Python a number is in MiB.
pub(crate) const TASK_MEMORY: Scalar<u64> = Scalar { python: "Union[str, int]", ..SIZE };

/// Number of tasks of a role.
pub(crate) const INSTANCE_COUNT: Scalar<u32> = Scalar {
    kind: "count",
    python: "int",
    parse: |text, _| instances(text),
    print: u32::to_string,
};

/// Number of tolerated failures, or `all`.
pub(crate) const TOLERATED: Scalar<u32> = Scalar {
    kind: "count or `all`",
    python: "Union[int, str]",
    parse: |text, _| match text {
        "all" => Ok(RoleSpec::ALL_MAY_FAIL),
        text => count(text),
    },
    print: |failures| match *failures {
        RoleSpec::ALL_MAY_FAIL => "all".to_owned(),
        failures => failures.to_string(),
    },
};

/// Size of an elastic role, as far as it is set.
#[derive(Default)]
pub(crate) struct Instances {
    pub min: Option<u32>,
    pub max: Option<u32>,
    pub start: Option<u32>,
}

/// Keys of `backoff` that are set.
#[derive(Clone, Copy, Default)]
pub(crate) struct PartialBackoff {
    pub initial: Option<Span>,
    pub max: Option<Span>,
}

impl PartialBackoff {
    pub(crate) fn complete(self, default: Backoff) -> Backoff {
        let initial = self.initial.unwrap_or(default.initial);
        // The default maximum is never less than the initial delay.
        Backoff { initial, max: self.max.unwrap_or(default.max.max(initial)) }
    }
}

impl From<Backoff> for PartialBackoff {
    fn from(backoff: Backoff) -> PartialBackoff {
        PartialBackoff { initial: Some(backoff.initial), max: Some(backoff.max) }
    }
}

/// Keys of `restart` that are set.
#[derive(Clone, Copy, Default)]
pub(crate) struct PartialRestart {
    pub scope: Option<RestartScope>,
    pub limit: Option<u32>,
    pub backoff: PartialBackoff,
    pub window: Option<Option<Span>>,
}

impl PartialRestart {
    fn complete(self, default: Restart) -> Restart {
        Restart {
            scope: self.scope.unwrap_or(default.scope),
            limit: self.limit.unwrap_or(default.limit),
            backoff: self.backoff.complete(default.backoff),
            window: self.window.unwrap_or(default.window),
        }
    }
}

impl From<Restart> for PartialRestart {
    fn from(restart: Restart) -> PartialRestart {
        PartialRestart {
            scope: Some(restart.scope),
            limit: Some(restart.limit),
            backoff: restart.backoff.into(),
            window: Some(restart.window),
        }
    }
}

impl Reader {
    /// Reads the keys of `restart` over those of `partial`.
    fn restart(&mut self, map: &Map, mut partial: PartialRestart) -> PartialRestart {
        if let Some(node) = map.find("restart") {
            let map = self.map(node, &map.key("restart"), RESTART.path());
            self.section(&map, &RESTART, &mut partial);
        }
        partial
    }

    /// Reads all roles, and completes commands that the framework shares.
    pub(crate) fn roles(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find("roles") else {
            return;
        };
        self.restart = self.restart(map, PartialRestart::default());
        let entries = self.entries(node, "roles");
        let names: Vec<_> = entries.iter().map(|(name, _)| name.name.as_str()).collect();
        for (name, node) in entries {
            let defaults = job.framework.role_defaults(&name.name, &names);
            job.roles.push(self.role(&name.name, node, defaults));
        }
        self.share_commands(job.framework, &mut job.roles);
        self.reject_misspelled(entries, &job.roles);
    }

    /// Rejects roles without a command that only `--set` names, while others are in the file.
    fn reject_misspelled(&mut self, entries: &[(Key, Node)], roles: &[RoleSpec]) {
        let in_file: Vec<_> = entries
            .iter()
            .filter(|(key, _)| matches!(key.at, Location::File { .. }))
            .map(|(key, _)| key.name.as_str())
            .collect();
        for ((key, _), role) in entries.iter().zip(roles) {
            let run = format!("roles.{}.run", key.name);
            let is_new = matches!(key.at, Location::Flag(_)) && !in_file.is_empty();
            if !is_new || !is_empty(&role.command) || self.reported.contains(&run) {
                continue;
            }
            let what = format!("the job file has no role `{}`", key.name);
            let hint = match nearest(&key.name, in_file.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("its roles are `{}`", in_file.join("`, `")),
            };
            self.diagnostics.push(Diagnostic::new(key.at.clone(), what).hint(hint));
            self.reported.insert(run);
        }
    }

    fn share_commands(&mut self, framework: Framework, roles: &mut [RoleSpec]) {
        let commands: Vec<_> = roles.iter().map(|r| (r.name.clone(), r.command.clone())).collect();
        for role in roles {
            let others = framework.command_fallbacks(role.name.as_str()).iter();
            let present = others
                .filter_map(|other| commands.iter().find(|(name, _)| name.as_str() == *other));
            // The first with a command, otherwise the first.
            let other = present.min_by_key(|(_, command)| is_empty(command));
            if let (true, Some((_, command))) = (is_empty(&role.command), other) {
                role.command = command.clone();
                if is_empty(command) {
                    // Reported once, for the other role.
                    self.reported.insert(format!("roles.{}.run", role.name));
                }
            }
        }
    }

    fn role(&mut self, name: &str, node: &Node, defaults: RoleDefaults) -> RoleSpec {
        // `server:` without a value has all defaults.
        let empty = Node::map(node.at.clone());
        let node = if node.value == Value::Null { &empty } else { node };
        let map = self.map(node, &format!("roles.{name}"), ROLE.path());
        if self.reported.contains(&map.path) {
            // Not a map: it has no command either.
            self.reported.insert(map.key("run"));
        }
        let mut role = RoleSpec {
            name: RoleName::from(name),
            completion: defaults.completion,
            restart: Restart { scope: defaults.scope, ..Restart::default() },
            ..RoleSpec::default()
        };
        self.section(&map, &ROLE, &mut role);
        let mut names = BTreeSet::new();
        role.depends_on.retain(|name| names.insert(name.clone()));
        role
    }

    /// Reads the restart policy; `instances` is read before it.
    pub(crate) fn role_restart(&mut self, map: &Map, role: &mut RoleSpec) {
        if role.elastic.is_some() {
            role.restart.limit = Restart::ELASTIC_LIMIT;
            if role.restart.scope == RestartScope::Task {
                // A change of members affects all tasks of the round.
                role.restart.scope = RestartScope::Job;
            }
        }
        role.restart = self.restart(map, self.restart).complete(role.restart);
    }

    /// Reads the initial number of tasks and the elastic range.
    pub(crate) fn instances(&mut self, map: &Map, role: &mut RoleSpec) {
        let Some(node) = map.find("instances") else {
            return;
        };
        let path = map.key("instances");
        let Value::Map(_) = &node.value else {
            INSTANCE_COUNT.read(self, node, &path, &mut role.instances);
            return;
        };
        let map = self.map(node, &path, INSTANCES.path());
        for name in ["min", "max"] {
            if map.find(name).is_none() && !self.reported.contains(&map.key(name)) {
                let what = format!("an elastic role needs `{name}`");
                let hint = "write `instances: {min: 2, max: 4}`";
                self.reject(&node.at, &path, what, hint);
            }
        }
        let mut size = Instances::default();
        self.section(&map, &INSTANCES, &mut size);
        let min = size.min.unwrap_or(1);
        let max = size.max.unwrap_or(min.max(1));
        role.instances = size.start.unwrap_or(max);
        role.elastic = Some(Range { min, max });
    }

    /// Reads `run` or `shell`; the command is empty if both are missing or invalid, which is reported.
    pub(crate) fn command(&mut self, map: &Map, role: &mut RoleSpec) {
        role.command = self.run(map);
    }

    fn run(&mut self, map: &Map) -> Command {
        let Some(run) = map.find("run") else {
            let Some(shell) = map.find("shell") else {
                return Command::default();
            };
            let key = map.key("shell");
            let script = self.text_of(shell, &key).unwrap_or_default();
            if script.trim().is_empty() {
                if !self.reported.contains(&key) {
                    self.reject(&shell.at, &key, "empty script", "");
                }
                self.reported.insert(map.key("run"));
            }
            return Command::Shell(script);
        };
        if let Some(shell) = map.find("shell") {
            let what = "a role has either `run` or `shell`, not both";
            self.reject(&shell.at, &map.key("shell"), what, "");
        }
        let path = map.key("run");
        if let Value::List(items) = &run.value {
            let words = items.iter().map(|item| self.text_of(item, &path));
            return Command::Program(words.collect::<Option<_>>().unwrap_or_default());
        }
        Command::Program(self.value_of(run, &path, split_words).unwrap_or_default())
    }

    pub(crate) fn memory_growth(&mut self, map: &Map, role: &mut RoleSpec) {
        let Some(node) = map.find("memory_growth") else {
            return;
        };
        let map = self.map(node, &map.key("memory_growth"), MEMORY_GROWTH.path());
        if map.find("max").is_none() && !self.reported.contains(&map.path) {
            let hint = "add `max: 8 GiB`";
            self.reject(&node.at, &map.key("max"), "missing upper limit", hint);
        }
        let mut growth = default_growth();
        self.section(&map, &MEMORY_GROWTH, &mut growth);
        role.memory_growth = Some(growth);
    }
}

/// Returns the default growth. Its maximum is a placeholder: a missing or invalid one has a diagnostic.
pub(crate) fn default_growth() -> MemoryGrowth {
    MemoryGrowth { percent: MemoryGrowth::PERCENT, max_mib: u64::MAX }
}

fn instances(text: &str) -> Result<u32, Rejection> {
    let n = count(text)?;
    if u64::from(n) > MAX_TASKS {
        let what = format!("{n} instances exceed the maximum of {MAX_TASKS} tasks");
        return Err((what, String::new()));
    }
    Ok(n)
}

fn is_empty(command: &Command) -> bool {
    match command {
        Command::Program(words) => words.is_empty(),
        Command::Shell(_) => false,
    }
}

/// Prints all roles.
pub(crate) fn print(job: &JobSpecBuilder) -> YamlValue {
    let role = |role: &RoleSpec| (role.name.to_string(), ROLE.print(role));
    YamlValue::Block(job.roles.iter().map(role).collect())
}

pub(crate) fn print_instances(role: &RoleSpec) -> YamlValue {
    match role.elastic {
        None => INSTANCE_COUNT.print(&role.instances),
        Some(Range { min, max }) => {
            let size = Instances { min: Some(min), max: Some(max), start: Some(role.instances) };
            OneLine(INSTANCES).print(&size)
        }
    }
}

pub(crate) fn print_run(role: &RoleSpec) -> YamlValue {
    match &role.command {
        Command::Program(words) => list(words.iter().map(|word| text(word))),
        Command::Shell(_) => YamlValue::Omitted,
    }
}

pub(crate) fn print_shell(role: &RoleSpec) -> YamlValue {
    match &role.command {
        Command::Program(_) => YamlValue::Omitted,
        Command::Shell(script) => YamlValue::Line(text(script)),
    }
}

pub(crate) fn print_restart(role: &RoleSpec) -> YamlValue {
    RESTART.print(&role.restart.into())
}
