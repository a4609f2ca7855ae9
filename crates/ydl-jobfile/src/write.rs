//! Prints jobs and trees as job files that read back as the same job or tree.

use super::{
    data::{EXISTING, FORMS},
    files::INTERPRETERS,
    roles::{COMPLETIONS, SCOPES},
    tree::{Key, Node, Value},
    units::{size_text, span_text},
};
use std::{collections::BTreeMap, fmt::Write};
use ydl_core::{
    JobSpec, Span,
    spec::{
        Backoff, ClusterOptions, Command, Environment, GpuAssignment, Image, Interpreter, Mount,
        Output, OutputScope, PackedEnvironment, Placement, Range, RoleSpec,
    },
};

/// Prints a job with all defaults.
pub fn show(spec: &JobSpec) -> String {
    let mut page = Page::default();
    page.line(0, "name", &text(&spec.name));
    page.line(0, "framework", &spec.framework.to_string());
    if spec.cluster_flags {
        page.line(0, "cluster_flags", "true");
    }
    page.line(0, "environment", &environment(&spec.environment));
    if !spec.files.is_empty() {
        page.open(0, "files");
        for file in &spec.files {
            let own = file.source.rsplit('/').next();
            let (name, source) = (text(&file.name), text(&file.source));
            page.item(
                1,
                &match (file.unpack, own == Some(&file.name)) {
                    (true, _) => format!("{name}: {{source: {source}, unpack: true}}"),
                    (false, true) => source,
                    (false, false) => format!("{name}: {source}"),
                },
            );
        }
    }
    page.inputs(spec);
    page.open(0, "roles");
    for role in &spec.roles {
        page.role(role);
    }
    page.texts(0, "env", &spec.env);
    page.outputs(spec);
    page.open(0, "gang");
    page.line(1, "together", &spec.gang.together.to_string());
    page.span(1, "hold", spec.gang.hold);
    page.line(1, "retries", &spec.gang.retries.to_string());
    page.line(1, "backoff", &backoff(spec.gang.backoff));
    page.span(1, "settle", spec.gang.settle);
    page.open(0, "timeouts");
    let d = &spec.timeouts;
    page.span(1, "allocation", d.allocation);
    page.span(1, "launch", d.launch);
    page.span(1, "join", d.join);
    page.span(1, "fetch", d.fetch);
    page.span(1, "start", d.start);
    page.line(1, "run", &or_none(d.run));
    page.span(1, "follow", d.follow);
    page.span(1, "heartbeat", d.heartbeat);
    page.span(1, "grace", d.grace);
    page.span(1, "stop", d.stop);
    page.span(1, "upload", d.upload);
    page.open(0, "node_exclusion");
    page.line(1, "failures", &spec.node_exclusion.failures.to_string());
    page.span(1, "timeout", spec.node_exclusion.timeout);
    page.line(1, "max_nodes", &spec.node_exclusion.max_nodes.to_string());
    page.line(0, "ports", &format!("{}-{}", spec.ports.first, spec.ports.last));
    page.on_cluster(&spec.cluster_options);
    page.0
}

/// Prints a tree.
pub fn written(root: &Node) -> String {
    let mut page = Page::default();
    page.node(0, root);
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// Prints the entries of a map, small ones on one line.
    fn node(&mut self, depth: usize, node: &Node) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        for (key, value) in entries {
            let short = flow(value);
            let holds_maps = |inner: &[(Key, Node)]| {
                let mut values = inner.iter().map(|(_, value)| &value.value);
                values.any(|value| matches!(value, Value::Map(_)))
            };
            match &value.value {
                Value::Map(inner) if short.len() > FLOW_MAX || holds_maps(inner) => {
                    self.open(depth, &text(&key.name));
                    self.node(depth + 1, value);
                }
                Value::List(items) if short.len() > FLOW_MAX => {
                    self.open(depth, &text(&key.name));
                    for item in items {
                        self.item(depth + 1, &flow(item));
                    }
                }
                _ => self.line(depth, &text(&key.name), &short),
            }
        }
    }

    fn line(&mut self, depth: usize, key: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{:1$}{key}: {value}", "", depth * 2);
    }

    fn open(&mut self, depth: usize, key: &str) {
        let _ = writeln!(self.0, "{:1$}{key}:", "", depth * 2);
    }

    fn item(&mut self, depth: usize, value: &str) {
        let _ = writeln!(self.0, "{:1$}- {value}", "", depth * 2);
    }

    fn span(&mut self, depth: usize, key: &str, span: Span) {
        self.line(depth, key, &span_text(span));
    }

    fn texts(&mut self, depth: usize, key: &str, texts: &BTreeMap<String, String>) {
        if !texts.is_empty() {
            self.open(depth, key);
            for (name, value) in texts {
                self.line(depth + 1, &text(name), &text(value));
            }
        }
    }

    fn inputs(&mut self, spec: &JobSpec) {
        if let Some(mib) = spec.disk_mib {
            self.line(0, "disk", &size_text(mib));
        }
        if spec.inputs.is_empty() {
            return;
        }
        self.open(0, "inputs");
        for input in &spec.inputs {
            self.open(1, &text(&input.name));
            self.line(2, "source", &text(&input.source));
            self.line(2, "as", word(&FORMS, input.form));
            let roles: Vec<_> = input.roles.iter().map(|role| role.to_string()).collect();
            self.words(2, "roles", &roles);
            self.line(2, "allow_empty", &input.allow_empty.to_string());
        }
    }

    fn outputs(&mut self, spec: &JobSpec) {
        if spec.outputs.is_empty() {
            return;
        }
        self.open(0, "outputs");
        for output in &spec.outputs {
            let plain = Output::new(&output.from, &output.to);
            if *output == plain {
                self.line(1, &text(&output.from), &text(&output.to));
                continue;
            }
            self.open(1, &text(&output.from));
            self.line(2, "to", &text(&output.to));
            let scope = match &output.scope {
                OutputScope::All => "all".to_string(),
                OutputScope::Role(role) => text(role.as_str()),
                OutputScope::Task(task) => task.to_string(),
            };
            self.line(2, "from", &scope);
            if let Some(every) = output.every {
                self.span(2, "every", every);
            }
            self.line(2, "existing", word(&EXISTING, output.existing));
        }
    }

    fn role(&mut self, role: &RoleSpec) {
        self.open(1, &text(role.name.as_str()));
        let instances = match role.elastic {
            Some(Range { min, max }) => {
                format!("{{min: {min}, max: {max}, start: {}}}", role.instances)
            }
            None => role.instances.to_string(),
        };
        self.line(2, "instances", &instances);
        self.line(2, "processes", &role.processes.to_string());
        self.line(2, "memory", &size_text(role.resources.memory_mib));
        self.line(2, "vcores", &role.resources.vcores.to_string());
        self.line(2, "gpus", &role.resources.gpus.to_string());
        if !role.resources.other.is_empty() {
            self.open(2, "resources");
            for (name, count) in &role.resources.other {
                self.line(3, &text(name), &count.to_string());
            }
        }
        match &role.command {
            Command::Program(words) => self.line(2, "run", &list(words)),
            Command::Shell(script) => self.line(2, "shell", &text(script)),
        }
        if let Some(own) = &role.environment {
            self.line(2, "environment", &environment(own));
        }
        self.texts(2, "env", &role.env);
        self.open(2, "restart");
        self.line(3, "scope", word(&SCOPES, role.restart.scope));
        self.line(3, "limit", &role.restart.limit.to_string());
        self.line(3, "backoff", &backoff(role.restart.backoff));
        self.line(3, "window", &or_none(role.restart.window));
        self.line(2, "completion", word(&COMPLETIONS, role.completion));
        let tolerate = match role.tolerate {
            RoleSpec::ALL_MAY_FAIL => "all".to_owned(),
            count => count.to_string(),
        };
        self.line(2, "tolerate", &tolerate);
        if let Some(growth) = role.memory_growth {
            self.open(2, "memory_growth");
            self.line(3, "percent", &growth.percent.to_string());
            self.line(3, "max", &size_text(growth.max_mib));
        }
        let after: Vec<_> = role.depends_on.iter().map(ToString::to_string).collect();
        self.words(2, "depends_on", &after);
        if !role.ports.is_empty() {
            self.line(2, "ports", &list(&role.ports));
        }
        self.placement(&role.placement);
    }

    fn placement(&mut self, placement: &Placement) {
        if let Some(label) = &placement.node_label {
            self.line(2, "node_label", &text(label));
        }
        let own = Placement { node_label: placement.node_label.clone(), ..Placement::default() };
        if *placement == own {
            return;
        }
        self.open(2, "placement");
        if let Some(most) = placement.max_per_node {
            self.line(3, "max_per_node", &most.to_string());
        }
        self.words(3, "nodes", &placement.nodes);
        self.words(3, "racks", &placement.racks);
        self.texts(3, "attributes", &placement.attributes);
    }

    fn on_cluster(&mut self, on: &ClusterOptions) {
        for (key, value) in [("queue", &on.queue), ("node_label", &on.node_label)] {
            self.maybe(0, key, value.as_deref());
        }
        if on.gpu_assignment == GpuAssignment::Agent {
            self.line(0, "gpu_assignment", "agent");
        }
        self.words(0, "tags", &on.tags);
        if let Some(priority) = on.priority {
            self.line(0, "priority", &priority.to_string());
        }
        if on.viewers.is_some() || on.modifiers.is_some() {
            self.open(0, "acls");
            self.maybe(1, "view", on.viewers.as_deref());
            self.maybe(1, "modify", on.modifiers.as_deref());
        }
        self.words(0, "file_systems", &on.file_systems);
        self.maybe(0, "staging", on.staging.as_deref());
        self.maybe(0, "network", on.network.as_deref());
        self.maybe(0, "checkpoint", on.checkpoint.as_deref());
        if let Some(keytab) = &on.keytab {
            self.open(0, "keytab");
            self.line(1, "principal", &text(&keytab.principal));
            self.line(1, "path", &text(&keytab.path));
        }
        if let Some(mlflow) = &on.mlflow {
            self.open(0, "mlflow");
            self.line(1, "uri", &text(&mlflow.uri));
            self.line(1, "experiment", &text(&mlflow.experiment));
            self.maybe(1, "run_name", mlflow.run_name.as_deref());
            self.texts(1, "tags", &mlflow.tags);
            self.maybe(1, "user", mlflow.user.as_deref());
            self.maybe(1, "token_file", mlflow.token_file.as_deref());
        }
        self.open(0, "master");
        self.line(1, "memory", &size_text(on.master.memory_mib));
        self.line(1, "vcores", &on.master.vcores.to_string());
        self.maybe(1, "node_label", on.master.node_label.as_deref());
        self.line(1, "attempts", &on.master.attempts.to_string());
    }

    fn maybe(&mut self, depth: usize, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(depth, key, &text(value));
        }
    }

    fn words(&mut self, depth: usize, key: &str, words: &[String]) {
        if !words.is_empty() {
            self.line(depth, key, &list(words));
        }
    }
}

fn environment(environment: &Environment) -> String {
    match environment {
        Environment::System => "system".to_string(),
        Environment::Archive(path) => text(path),
        Environment::Directory(from) | Environment::Requirements(from) | Environment::Pex(from) => {
            packed(from)
        }
        Environment::Image(image) => self::image(image),
    }
}

fn image(image: &Image) -> String {
    let mut all = vec![format!("{}: {}", image.runtime, text(&image.name))];
    if !image.mounts.is_empty() {
        let mounts: Vec<_> = image.mounts.iter().map(Mount::to_string).collect();
        all.push(format!("mounts: {}", list(&mounts)));
    }
    let texts = [("network", &image.network), ("login", &image.login)];
    let texts = texts.map(|(key, value)| Some(format!("{key}: {}", text(value.as_ref()?))));
    all.extend(texts.into_iter().flatten());
    let truths = [("privileged", image.privileged), ("keep", image.keep)];
    let truths = truths.iter().filter(|(_, said)| *said);
    all.extend(truths.map(|(key, _)| format!("{key}: true")));
    format!("{{{}}}", all.join(", "))
}

fn packed(from: &PackedEnvironment) -> String {
    match from.interpreter {
        Interpreter::Auto => text(&from.path),
        other => {
            let word = word(&INTERPRETERS, other);
            format!("{{path: {}, interpreter: {word}}}", text(&from.path))
        }
    }
}

fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
}

fn backoff(backoff: Backoff) -> String {
    format!("{{initial: {}, max: {}}}", span_text(backoff.initial), span_text(backoff.max))
}

fn or_none(span: Option<Span>) -> String {
    span.map_or("none".to_string(), span_text)
}

/// Maximum length of values in flow style.
const FLOW_MAX: usize = 96;

fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_string(),
        Value::Scalar { text: said, plain } => match said.as_str() {
            "true" | "false" if *plain => said.clone(),
            _ => text(said),
        },
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entry =
                |(key, value): &(Key, Node)| format!("{}: {}", text(&key.name), flow(value));
            let entries: Vec<_> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn list(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| text(word)).collect();
    format!("[{}]", words.join(", "))
}

/// Prints text, quoted where YAML would interpret it.
fn text(text: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || "_./+=@%-".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_./".contains(c));
    let null = matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if begins && text.chars().all(letter) && !null {
        return text.to_string();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // YAML interprets some of these as line breaks.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
