//! Flags that Yarn-TF inherits from DistributedShell.

use super::{mebibytes, resources, script_of};
use crate::{
    flags::{Flag, Typed, list, used},
    runtime::{self, Told, Variable},
    sheet::{Sheet, quoted},
};
use ydl_jobfile::Node;
use ydl_os::report::Report;

/// Limit for unlimited retries.
const WITHOUT_END: &str = "1000000";

pub const FLAGS: &[Flag] = &[
    used(&["--shell_command"], "COMMAND", "what is run"),
    used(&["--shell_script"], "FILE", "a script that is run, in place of a command"),
    list(&["--shell_args"], "ARGUMENT…", "arguments of either, up to the next flag"),
    list(&["--shell_env"], "NAME=VALUE", "variables of every task"),
    used(&["--num_containers"], "N", "how many tasks run it, where there are no trainers (1)"),
    used(&["--appname"], "NAME", "the job's name; its program's if left out"),
    used(&["--queue"], "NAME", "the queue"),
    used(&["--priority"], "N", "among the jobs of the queue"),
    used(&["--timeout"], "MS", "after which the job is ended; never if left out"),
    used(&["--container_memory"], "MB", "memory of a task (1024)"),
    used(&["--container_vcores"], "N", "virtual cores of a task (1)"),
    used(&["--container_resources"], "NAME=N,…", "resources of a task, as yarn.io/gpu=2"),
    used(&["--master_memory"], "MB", "memory of the master"),
    used(&["--master_vcores"], "N", "virtual cores of the master"),
    used(&["--master_resources"], "NAME=N,…", "resources of the master"),
    used(&["--node_label_expression"], "LABEL", "the label of the nodes"),
    used(
        &["--container_retry_policy"],
        "0|1|2",
        "whether failed tasks are tried again: never, always, for some codes (0)",
    ),
    used(&["--container_max_retries"], "N", "how often"),
    used(&["--container_retry_interval"], "MS", "after how long at first"),
    used(&["--container_failures_validity_interval"], "MS", "older failures are forgotten"),
    used(&["--localize_files"], "FILE,…", "files that travel with the job"),
    used(&["--application_tags"], "TAG,…", "words to find the job by"),
    used(&["--view_acls"], "WHO", "who may see the job"),
    used(&["--modify_acls"], "WHO", "who may end it"),
    used(
        &["--docker_client_config"],
        "FILE",
        "the login of a docker registry, in HDFS or on every node",
    ),
];

/// The command and its arguments, or the script, which travels. As DistributedShell had it, all of them are one line of a
/// shell: what is quoted in it stays together, and what only a shell understands is left to one.
pub fn words(sheet: &mut Sheet, typed: &Typed) -> Result<Vec<String>, Report> {
    let (command, script) = (typed.last("--shell_command"), typed.last("--shell_script"));
    let mut line = match (command, script) {
        (Some(command), None) => command.value.trim().to_owned(),
        (None, Some(script)) => {
            sheet.file(&script.value, None, script.at());
            format!("/bin/bash {}", quoted(&script_of(script)))
        }
        (None, None) => {
            return Err(typed
                .wrong("there is nothing to run")
                .hint("write `--shell_command 'python trainer.py'`, or `--shell_script FILE`"));
        }
        (Some(_), Some(_)) => {
            return Err(typed
                .wrong("there is a command and a script")
                .hint("leave one of them out"));
        }
    };
    for said in typed.all("--shell_args") {
        line += &format!(" {}", said.value);
    }
    super::command::split(typed, &line)
}

/// Sets resources of tasks and master.
pub fn sizes(sheet: &mut Sheet, typed: &Typed, roles: &[&str]) {
    for role in roles {
        if let Some(said) = typed.last("--container_memory") {
            let size = Node::text(said.at(), mebibytes(&said.value));
            sheet.put(&["roles", role, "memory"], size);
        }
        sheet.put_flag(&["roles", role, "vcores"], typed, "--container_vcores");
        if let Some(said) = typed.last("--container_resources") {
            resources(sheet, &["roles", role], said);
        }
    }
    if let Some(said) = typed.last("--master_memory") {
        let size = Node::text(said.at(), mebibytes(&said.value));
        sheet.put(&["master", "memory"], size);
    }
    sheet.put_flag(&["master", "vcores"], typed, "--master_vcores");
    if let Some(said) = typed.last("--master_resources") {
        resources(sheet, &["master"], said);
    }
}

/// Sets queue, ACLs, tags, retries and timeouts.
pub fn manners(sheet: &mut Sheet, typed: &Typed) {
    let plain = [
        ("queue", "--queue"),
        ("priority", "--priority"),
        ("node_label", "--node_label_expression"),
    ];
    for (key, flag) in plain {
        sheet.put_flag(&[key], typed, flag);
    }
    sheet.put_flag(&["acls", "view"], typed, "--view_acls");
    sheet.put_flag(&["acls", "modify"], typed, "--modify_acls");
    if let Some(said) = typed.last("--application_tags") {
        for tag in said.value.split(',').filter(|tag| !tag.is_empty()) {
            sheet.add(&["tags"], Node::text(said.at(), tag));
        }
    }
    retries(sheet, typed);
    let times = [
        ("--container_retry_interval", ["restart", "backoff", "initial"].as_slice()),
        ("--container_failures_validity_interval", &["restart", "window"]),
        ("--timeout", &["timeouts", "run"]),
    ];
    for (flag, path) in times {
        if let Some(said) = typed.last(flag).filter(|said| said.value != "-1") {
            sheet.put(path, Node::text(said.at(), format!("{}ms", said.value)));
        }
    }
}

/// Sets the retries of failed tasks.
fn retries(sheet: &mut Sheet, typed: &Typed) {
    let most = typed.last("--container_max_retries");
    let policy = typed.last("--container_retry_policy");
    match policy.map(|said| (said, said.value.as_str())) {
        None | Some((_, "0")) => {
            if most.is_some() {
                sheet.notes.push(
                    "`--container_max_retries` changes nothing without `--container_retry_policy 1`"
                        .to_owned(),
                );
            }
        }
        Some((_, "1" | "2")) => match most {
            Some(said) if said.value == "-1" => {
                let forever = Node::plain(said.at(), WITHOUT_END);
                sheet.put(&["restart", "limit"], forever);
            }
            Some(said) => sheet.put_said(&["restart", "limit"], said),
            None => sheet.put_own(&["restart", "limit"], 3),
        },
        Some((said, other)) => {
            let what = format!("there is no policy `{other}`");
            sheet.wrong(said, what, "write 0 (never), 1 (always) or 2 (for some codes)");
        }
    }
}

/// Variables of tasks, without those by which YARN is told of an image: what those say comes back. `named` says that a
/// flag names the image.
pub fn variables(sheet: &mut Sheet, typed: &Typed, named: bool) -> Told {
    let mut of_yarn = Vec::new();
    for said in typed.all("--shell_env") {
        match said.value.split_once('=') {
            Some((name, value)) if runtime::is_one(name) => of_yarn.push(Variable {
                name: name.to_owned(),
                value: value.to_owned(),
                at: said.at(),
            }),
            _ => sheet.assignment(None, said, '='),
        }
    }
    let mut told = runtime::read(&of_yarn, named);
    sheet.diagnostics(std::mem::take(&mut told.diagnostics));
    told
}
