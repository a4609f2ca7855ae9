//! What Yarn-TF has from DistributedShell.

use super::{NOWHERE, mebibytes, resources, said_as, script_of};
use crate::{
    doors::{
        flags::{Flag, Said, Typed, list, used},
        sheet::Sheet,
    },
    jobfile::{Node, words as words_of},
    report::Report,
};

pub const FLAGS: &[Flag] = &[
    used(&["--shell_command"], "COMMAND", "what is run"),
    used(
        &["--shell_script"],
        "FILE",
        "a script that is run, in place of a command",
    ),
    list(
        &["--shell_args"],
        "ARGUMENT…",
        "arguments of either, up to the next flag",
    ),
    list(&["--shell_env"], "NAME=VALUE", "variables of every task"),
    used(
        &["--num_containers"],
        "N",
        "how many tasks run it, where there are no trainers (1)",
    ),
    used(
        &["--appname"],
        "NAME",
        "the job's name; its program's if left out",
    ),
    used(&["--queue"], "NAME", "the queue"),
    used(&["--priority"], "N", "among the jobs of the queue"),
    used(
        &["--timeout"],
        "MS",
        "after which the job is ended; never if left out",
    ),
    used(&["--container_memory"], "MB", "memory of a task (1024)"),
    used(&["--container_vcores"], "N", "virtual cores of a task (1)"),
    used(
        &["--container_resources"],
        "NAME=N,…",
        "resources of a task, as yarn.io/gpu=2",
    ),
    used(&["--master_memory"], "MB", "memory of the master"),
    used(&["--master_vcores"], "N", "virtual cores of the master"),
    used(
        &["--master_resources"],
        "NAME=N,…",
        "resources of the master",
    ),
    used(
        &["--node_label_expression"],
        "LABEL",
        "the label of the nodes",
    ),
    used(
        &["--container_retry_policy"],
        "0|1|2",
        "whether failed tasks are tried again: never, always, for some codes (0)",
    ),
    used(&["--container_max_retries"], "N", "how often"),
    used(
        &["--container_retry_interval"],
        "MS",
        "after how long at first",
    ),
    used(
        &["--container_failures_validity_interval"],
        "MS",
        "older failures are forgotten",
    ),
    used(
        &["--localize_files"],
        "FILE,…",
        "files that travel with the job",
    ),
    used(&["--application_tags"], "TAG,…", "words to find the job by"),
    used(&["--view_acls"], "WHO", "who may see the job"),
    used(&["--modify_acls"], "WHO", "who may end it"),
    used(
        &["--docker_client_config"],
        "FILE",
        "the login of a docker registry, in HDFS or on every node",
    ),
];

/// The command and its arguments, or the script, which travels.
pub fn words(sheet: &mut Sheet, typed: &Typed) -> Result<Vec<String>, Report> {
    let (command, script) = (typed.last("--shell_command"), typed.last("--shell_script"));
    let mut words = match (command, script) {
        (Some(command), None) => split(typed, command),
        (None, Some(script)) => {
            sheet.file(&script.value, None, script.at());
            vec!["/bin/bash".to_owned(), script_of(script)]
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
        let own = words_of(&said.value);
        words.extend(own.unwrap_or_else(|_| vec![said.value.clone()]));
    }
    Ok(words)
}

/// A command in words; what only a shell understands is left to one, which gets further arguments behind it.
fn split(typed: &Typed, said: &Said) -> Vec<String> {
    words_of(&said.value).unwrap_or_else(|_| {
        let script = format!("{} \"$@\"", said.value);
        let shell = ["/bin/sh", "-c", &script, &typed.door];
        shell.map(str::to_owned).to_vec()
    })
}

/// What tasks and the master ask for.
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

/// How the cluster and the master treat the job.
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
    let policy = typed.last("--container_retry_policy");
    let again = policy.is_some_and(|said| said.value != "0");
    match typed.last("--container_max_retries") {
        Some(said) if again => sheet.put_said(&["restart", "limit"], said),
        None if again => sheet.put(&["restart", "limit"], Node::plain(NOWHERE, "3")),
        _ => {}
    }
    let times = [
        (
            "--container_retry_interval",
            ["restart", "backoff", "first"].as_slice(),
        ),
        (
            "--container_failures_validity_interval",
            &["restart", "window"],
        ),
        ("--timeout", &["deadlines", "run"]),
    ];
    for (flag, path) in times {
        if let Some(said) = typed.last(flag).filter(|said| said.value != "-1") {
            sheet.put(path, Node::text(said.at(), format!("{}ms", said.value)));
        }
    }
}

/// Variables of tasks. Those by which YARN is told of an image become the job's own words for it; the image comes back.
pub fn variables(sheet: &mut Sheet, typed: &Typed) -> Option<Said> {
    let mut image = None;
    for said in typed.all("--shell_env") {
        let (name, value) = said.value.split_once('=').unwrap_or_default();
        match name.strip_prefix("YARN_CONTAINER_RUNTIME_") {
            Some("TYPE") => {}
            Some("DOCKER_IMAGE") => image = Some(said_as(said, "--docker_image", value)),
            Some("DOCKER_MOUNTS") => {
                for mount in value.split(',').filter(|mount| !mount.is_empty()) {
                    sheet.add(&["environment", "mounts"], Node::text(said.at(), mount));
                }
            }
            Some("DOCKER_CONTAINER_NETWORK") => {
                sheet.put(&["environment", "network"], Node::text(said.at(), value));
            }
            Some("DOCKER_RUN_PRIVILEGED_CONTAINER") => {
                sheet.put(
                    &["environment", "privileged"],
                    Node::plain(said.at(), value),
                );
            }
            Some(other) => {
                let what = format!("`{other}` of YARN's runtimes has no equal in a job file");
                sheet.wrong(said, what, "leave it out");
            }
            None => sheet.assignment(None, said, '='),
        }
    }
    image
}
