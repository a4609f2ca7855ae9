//! Flags that Yarn-TF inherits from DistributedShell.

use super::{mebibytes, resources, task_path};
use crate::{
    JobFileBuilder,
    container_runtime::{self, RuntimeKeys, RuntimeVariable},
    flags::{Flag, list, with_value},
    parser::ParsedArgs,
    program,
    text::shell_quoted,
};
use ydl_jobfile::Node;
use ydl_os::report::Report;

/// Retry limit for `-1`.
const UNLIMITED: &str = "1000000";

pub(crate) const FLAGS: &[Flag] = &[
    with_value(&["--shell_command"], "COMMAND", "command to run"),
    with_value(&["--shell_script"], "FILE", "script to run instead of a command"),
    list(&["--shell_args"], "ARGUMENT…", "arguments of the command or script, up to the next flag"),
    list(&["--shell_env"], "NAME=VALUE", "variables of all tasks"),
    with_value(&["--num_containers"], "N", "number of tasks without trainers [default: 1]"),
    with_value(&["--appname"], "NAME", "name of the job [default: the program's]"),
    with_value(&["--queue"], "NAME", "YARN queue"),
    with_value(&["--priority"], "N", "priority in the queue"),
    with_value(&["--timeout"], "MS", "end the job after this time [default: never]"),
    with_value(&["--container_memory"], "MB", "memory of a task [default: 1024]"),
    with_value(&["--container_vcores"], "N", "virtual cores of a task [default: 1]"),
    with_value(
        &["--container_resources"],
        "NAME=N,…",
        "resources of a task, such as yarn.io/gpu=2",
    ),
    with_value(&["--master_memory"], "MB", "memory of the master"),
    with_value(&["--master_vcores"], "N", "virtual cores of the master"),
    with_value(&["--master_resources"], "NAME=N,…", "resources of the master"),
    with_value(&["--node_label_expression"], "LABEL", "run on nodes with this label"),
    with_value(
        &["--container_retry_policy"],
        "0|1|2",
        "retry failed tasks: never, always, on certain codes [default: 0]",
    ),
    with_value(&["--container_max_retries"], "N", "maximum number of retries [default: 3]"),
    with_value(&["--container_retry_interval"], "MS", "initial delay of a retry"),
    with_value(
        &["--container_failures_validity_interval"],
        "MS",
        "forget failures after this time",
    ),
    with_value(
        &["--localize_files", "--files", "--file"],
        "FILE,…",
        "files to ship with the job; may be repeated",
    ),
    with_value(&["--application_tags"], "TAG,…", "tags of the YARN application"),
    with_value(&["--view_acls"], "ACL", "users and groups that may view the job"),
    with_value(&["--modify_acls"], "ACL", "users and groups that may modify the job"),
    with_value(
        &["--docker_client_config"],
        "FILE",
        "credentials of a docker registry, in HDFS or on all nodes",
    ),
];

/// Returns the words of the command with its arguments, or of the script, which is shipped. As in DistributedShell, all of
/// them are one line of a shell.
pub(crate) fn words(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
) -> Result<Vec<String>, Report> {
    let (command, script) = (args.last("--shell_command"), args.last("--shell_script"));
    let mut line = match (command, script) {
        (Some(command), None) => command.value.trim().to_owned(),
        (None, Some(script)) => {
            builder.file(&script.value, None, script.location());
            format!("/bin/bash {}", shell_quoted(&task_path(script)))
        }
        (None, None) => {
            return Err(args
                .error("the command to run is missing")
                .hint("write `--shell_command 'python trainer.py'`, or `--shell_script FILE`"));
        }
        (Some(_), Some(_)) => {
            return Err(args
                .error("`--shell_command` and `--shell_script` exclude each other")
                .hint("remove one of them"));
        }
    };
    for arg in args.all("--shell_args") {
        line += &format!(" {}", arg.value);
    }
    program::split_line(args, &line)
}

/// Sets resources of tasks and master.
pub(crate) fn set_resources(builder: &mut JobFileBuilder, args: &ParsedArgs, roles: &[&str]) {
    for role in roles {
        if let Some(arg) = args.last("--container_memory") {
            let size = Node::text(arg.location(), mebibytes(&arg.value));
            builder.put(&["roles", role, "memory"], size);
        }
        builder.put_flag(&["roles", role, "vcores"], args, "--container_vcores");
        if let Some(arg) = args.last("--container_resources") {
            resources(builder, &["roles", role], arg);
        }
    }
    if let Some(arg) = args.last("--master_memory") {
        let size = Node::text(arg.location(), mebibytes(&arg.value));
        builder.put(&["master", "memory"], size);
    }
    builder.put_flag(&["master", "vcores"], args, "--master_vcores");
    if let Some(arg) = args.last("--master_resources") {
        resources(builder, &["master"], arg);
    }
}

/// Sets queue, ACLs, tags, retries and timeouts.
pub(crate) fn set_policies(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    let plain = [
        ("queue", "--queue"),
        ("priority", "--priority"),
        ("node_label", "--node_label_expression"),
    ];
    for (key, flag) in plain {
        builder.put_flag(&[key], args, flag);
    }
    builder.put_flag(&["acls", "view"], args, "--view_acls");
    builder.put_flag(&["acls", "modify"], args, "--modify_acls");
    if let Some(arg) = args.last("--application_tags") {
        for tag in arg.value.split(',').filter(|tag| !tag.is_empty()) {
            builder.append(&["tags"], Node::text(arg.location(), tag));
        }
    }
    set_retries(builder, args);
    let times = [
        ("--container_retry_interval", ["restart", "backoff", "initial"].as_slice()),
        ("--container_failures_validity_interval", &["restart", "window"]),
        ("--timeout", &["timeouts", "run"]),
    ];
    for (flag, path) in times {
        if let Some(arg) = args.last(flag).filter(|arg| arg.value != "-1") {
            builder.put(path, Node::text(arg.location(), format!("{}ms", arg.value)));
        }
    }
}

/// Sets the retries of failed tasks.
fn set_retries(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    let limit = args.last("--container_max_retries");
    let policy = args.last("--container_retry_policy");
    match policy.map(|arg| (arg, arg.value.as_str())) {
        None | Some((_, "0")) => {
            if limit.is_some() {
                builder.notes.push(
                    "`--container_max_retries` has no effect without `--container_retry_policy 1`"
                        .to_owned(),
                );
            }
        }
        Some((_, "1" | "2")) => match limit {
            Some(arg) if arg.value == "-1" => {
                let forever = Node::plain(arg.location(), UNLIMITED);
                builder.put(&["restart", "limit"], forever);
            }
            Some(arg) => builder.put_arg(&["restart", "limit"], arg),
            None => builder.put_default(&["restart", "limit"], 3),
        },
        Some((arg, other)) => {
            let what = format!("unknown retry policy `{other}`");
            builder.error(arg, what, "use 0 (never), 1 (always) or 2 (on certain codes)");
        }
    }
}

/// Sets variables of tasks, and translates those of YARN's container runtime. `has_image` is true if a flag names the image.
pub(crate) fn set_variables(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    has_image: bool,
) -> RuntimeKeys {
    let mut runtime = Vec::new();
    for arg in args.all("--shell_env") {
        match arg.value.split_once('=') {
            Some((name, value)) if container_runtime::is_runtime_variable(name) => {
                runtime.push(RuntimeVariable {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    at: arg.location(),
                })
            }
            _ => builder.assignment(None, arg, '='),
        }
    }
    let mut keys = container_runtime::translate(&runtime, has_image);
    builder.diagnostics(std::mem::take(&mut keys.diagnostics));
    keys
}
