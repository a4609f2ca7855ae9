//! Command line of Yarn-TF: Hadoop's DistributedShell with an archive of code, mounts, outputs and TensorFlow's roles.

mod mounts;
mod shell;

use super::{
    CommandAction, CompatCommand, JobFileBuilder,
    caller::{CallerEnv, Cluster},
    dmlc,
    flags::{Flag, ignored, ignored_switch, list, rejected, with_value},
    parser::{FlagValue, ParsedArgs, Style},
    program, python,
    text::file_name,
};
use ydl_jobfile::Node;
use ydl_os::report::Report;

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["yarn-tf"],
    about: "Run parameter servers and trainers of TensorFlow, or any command in several containers",
    usage: "--num_parameter_servers N --num_trainers N --tar CODE.tar --shell_command 'python trainer.py' …",
    style: Style::Gnu,
    flags: &[FLAGS, shell::FLAGS, IGNORED],
    action: CommandAction::Translate(translate),
};

const FLAGS: &[Flag] = &[
    with_value(&["--num_parameter_servers"], "N", "number of parameter servers"),
    with_value(&["--num_trainers"], "N", "number of workers"),
    with_value(
        &["--tar"],
        "FILE",
        "archive of code, on this machine or in HDFS, to unpack in each task's directory",
    ),
    list(&["--mounts", "--mount"], "SOURCE:TARGET[:ro]", "mount these paths of nodes in tasks"),
    list(
        &["--output", "--outputs"],
        "SOURCE:DESTINATION",
        "copy these paths when a worker ends: to HDFS (with --cluster local to this machine), or below a mount",
    ),
    with_value(&["--docker_image"], "IMAGE", "run all tasks in this image"),
    with_value(&["--cluster"], "CLUSTER", "yarn, or local for this machine [default: yarn]"),
];

const OLD_MASTER: &str = "it configured the master of DistributedShell";
const NO_TIMELINE: &str = "events are stored with the job, not in a timeline server";
const GUARANTEED: &str = "containers are guaranteed ones";
const IGNORED: &[Flag] = &[
    ignored(&["--jar"], "ydl needs no jar"),
    ignored(&["--log_properties"], OLD_MASTER),
    ignored(&["--rolling_log_pattern"], "logs are uploaded to HDFS while tasks run"),
    ignored_switch(
        &["--keep_containers_across_application_attempts"],
        "containers are always kept when the master restarts",
    ),
    ignored(
        &["--attempt_failures_validity_interval"],
        "`master: {attempts: N}` in a job file limits the attempts of the master",
    ),
    ignored_switch(&["--debug"], "see `ydl status` and `ydl logs`"),
    ignored(&["--domain"], NO_TIMELINE),
    ignored_switch(&["--create"], NO_TIMELINE),
    ignored(&["--flow_name"], NO_TIMELINE),
    ignored(&["--flow_version"], NO_TIMELINE),
    ignored(&["--flow_run_id"], NO_TIMELINE),
    ignored(&["--shell_cmd_priority"], "containers of a job are requested together"),
    ignored(&["--container_type"], GUARANTEED),
    ignored_switch(&["--promote_opportunistic_after_start"], GUARANTEED),
    ignored_switch(&["--enforce_execution_type"], GUARANTEED),
    ignored(&["--container_retry_error_codes"], "failures are retried whatever their exit code"),
    rejected(&["--placement_spec"], "DistributedShell; use `placement` in a job file"),
    rejected(&["--master_resource_profile"], "resource profiles; use `--master_resources`"),
    rejected(&["--container_resource_profile"], "resource profiles; use `--container_resources`"),
];

fn translate(args: &mut ParsedArgs, caller: &CallerEnv) -> Result<JobFileBuilder, Report> {
    let mut builder = JobFileBuilder::empty();
    let cluster = match args.last("--cluster") {
        Some(_) => dmlc::cluster(args, caller, "--cluster")?,
        None => Some(Cluster::Yarn),
    };
    builder.set_cluster(cluster, caller);
    let words = shell::words(&mut builder, args)?;
    let script = args.last("--shell_command");
    let script = script.or(args.last("--shell_script"));
    let script = script.iter().flat_map(|arg| arg.value.split_whitespace());
    let arguments = args.all("--shell_args").map(|arg| arg.value.as_str());
    let named: Vec<_> = script.chain(arguments).map(str::to_owned).collect();
    builder.set_name(args.last("--appname"), &named);
    let servers = args.count("--num_parameter_servers")?.unwrap_or(0);
    let trainers = args.last("--num_trainers");
    // Without either the command runs in `--num_containers` containers, as in DistributedShell.
    let distributed = servers > 0 || trainers.is_some();
    let roles: &[&str] = match (distributed, servers) {
        (true, 1..) => &["worker", "ps"],
        _ => &["worker"],
    };
    if distributed {
        builder.put_default(&["framework"], "tensorflow");
        builder.put_default(&["cluster_flags"], true);
    }
    match (trainers, args.last("--num_containers")) {
        (Some(arg), _) => builder.put_arg(&["roles", "worker", "instances"], arg),
        (None, Some(arg)) if !distributed => {
            builder.put_arg(&["roles", "worker", "instances"], arg)
        }
        _ => builder.put_default(&["roles", "worker", "instances"], 1),
    }
    if distributed && args.has("--num_containers") {
        let note = "`--num_containers` has no effect: `--num_trainers` sets the number of workers";
        builder.notes.push(note.to_owned());
    }
    if servers > 0 {
        builder.put_flag(&["roles", "ps", "instances"], args, "--num_parameter_servers");
    }
    shell::set_resources(&mut builder, args, roles);
    shell::set_policies(&mut builder, args);
    set_image(&mut builder, args);
    if let Some(arg) = args.last("--tar")
        && let Err(what) = builder.archive(&arg.value, arg.location())
    {
        builder.error(arg, what, "create one with `tar -cf code.tar …`");
    }
    for arg in args.all("--localize_files") {
        for path in arg.value.split(',').filter(|path| !path.is_empty()) {
            program::add_files(&mut builder, path, &arg.location());
        }
    }
    let words = python::ship_environment(&mut builder, args, caller, words);
    let mounts = mounts::mounts(&mut builder, args);
    let several = workers(args) != Some(1);
    mounts::outputs(&mut builder, args, &mounts, several);
    builder.set_command("worker", &args.name, &words);
    Ok(builder)
}

/// Returns the number of workers, if valid.
fn workers(args: &ParsedArgs) -> Option<u32> {
    let arg = args.last("--num_trainers").or(args.last("--num_containers"));
    arg.map_or(Some(1), |arg| arg.value.parse().ok())
}

/// Sets the image of all tasks and its options.
fn set_image(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    let has_image = args.has("--docker_image");
    let runtime = shell::set_variables(builder, args, has_image);
    for (key, node) in runtime.keys {
        builder.put(&["environment", key], node);
    }
    builder.put_flag(&["environment", "docker"], args, "--docker_image");
    builder.put_flag(&["environment", "login"], args, "--docker_client_config");
}

/// Translates resources such as `memory-mb=2048,vcores=2,yarn.io/gpu=1`.
fn resources(builder: &mut JobFileBuilder, path: &[&str], arg: &FlagValue) {
    for pair in arg.value.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            builder.error(
                arg,
                format!("missing `=` in `{pair}`"),
                "write `vcores=2,memory-mb=2048`",
            );
            continue;
        };
        let below = |last: &'static str| [path, &[last]].concat();
        match name {
            "memory-mb" | "memory" => {
                let size = mebibytes(value);
                builder.put(&below("memory"), Node::text(arg.location(), size));
            }
            "vcores" => builder.put(&below("vcores"), Node::plain(arg.location(), value)),
            "yarn.io/gpu" | "gpu" if path.contains(&"ps") => {
                let note = format!("`{name}` applies to workers only, not to parameter servers");
                builder.notes.push(note);
            }
            "yarn.io/gpu" | "gpu" => {
                builder.put(&below("gpus"), Node::plain(arg.location(), value))
            }
            other => {
                let mut whole = below("resources");
                whole.push(other);
                builder.put(&whole, Node::plain(arg.location(), value));
            }
        }
    }
}

/// Adds the unit to a number without one, which is in MiB as in YARN.
fn mebibytes(text: &str) -> String {
    match text.chars().all(|c| c.is_ascii_digit()) {
        true => format!("{text}m"),
        false => text.to_owned(),
    }
}

/// Returns the path of a shipped script in a task.
fn task_path(arg: &FlagValue) -> String {
    format!("./{}", file_name(&arg.value))
}
