//! Common parts of the commands of dmlc-core: jobs with a Rabit tracker or with parameter servers.

use super::{
    JobFileBuilder,
    caller::{CallerEnv, Cluster},
    flags::{Flag, before_command, ignored, rejected, with_value},
    parser::{FlagValue, ParsedArgs},
};
use ydl_jobfile::{Location, Node};
use ydl_os::report::Report;

/// Default number of attempts of a task.
pub(crate) const ATTEMPTS: u32 = 3;

/// Variables that ydl sets itself; those of the user's shell are ignored.
const RESERVED_VARIABLES: [&str; 21] = [
    "DMLC_SUBMIT_CLUSTER",
    "DMLC_ROLE",
    "DMLC_TASK_ID",
    "DMLC_NUM_ATTEMPT",
    "DMLC_NODE_HOST",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_TRACKER_URI",
    "DMLC_TRACKER_PORT",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_WORKER_ID",
    "DMLC_SERVER_ID",
    "DMLC_JOB_CLUSTER",
    "DMLC_JOB_ARCHIVES",
    "DMLC_MAX_ATTEMPT",
    "DMLC_HDFS_OPTS",
    "DMLC_WORKER_CORES",
    "DMLC_SERVER_CORES",
    "DMLC_WORKER_MEMORY_MB",
    "DMLC_SERVER_MEMORY_MB",
];
/// Parts of the names of variables that must not be visible to viewers of a job.
const SECRETS: [&str; 3] = ["SECRET", "TOKEN", "PASSWORD"];

/// Flags for memory and virtual cores of each role.
pub(crate) const ROLE_FLAGS: [(&str, &str, &str); 2] = [
    ("worker", "--worker-memory", "--worker-cores"),
    ("server", "--server-memory", "--server-cores"),
];

/// Flags of resources, queue and retries.
pub(crate) const RESOURCE_FLAGS: &[Flag] = &[
    with_value(&["--worker-cores"], "N", "virtual cores of a worker [default: 1]"),
    with_value(&["--server-cores"], "N", "virtual cores of a server [default: 1]"),
    with_value(
        &["--worker-memory"],
        "SIZE",
        "memory of a worker, such as 1g, 512m or 1.5g [default: 1g]",
    ),
    with_value(&["--server-memory"], "SIZE", "memory of a server [default: 1g]"),
    with_value(&["--jobname"], "NAME", "name of the job [default: the program's]"),
    with_value(&["--queue"], "NAME", "YARN queue"),
    // dmlc-core did not have this flag.
    before_command(with_value(
        &["--max-attempts"],
        "N",
        "attempts of a task [default: DMLC_MAX_ATTEMPT, or 3 on a cluster]",
    )),
    with_value(
        &["--local-num-attempt"],
        "N",
        "restarts of a task on this machine after failures [default: 0]",
    ),
    with_value(
        &["--hdfs-tempdir"],
        "DIR",
        "staging directory in HDFS, which gets a directory ydl-USER",
    ),
];

/// Flags of files and variables that are shipped with a job.
pub(crate) const SHIPPING_FLAGS: &[Flag] = &[
    with_value(&["--auto-file-cache"], "BOOL", "ship files named in the command [default: true]"),
    with_value(
        &["--files", "--file"],
        "FILE[#NAME]",
        "file or directory to ship with the job; may be repeated",
    ),
    with_value(
        &["--archives"],
        "FILE",
        "unpack this .zip or .tar… in each task's directory; may be repeated",
    ),
    with_value(&["--env"], "NAME=VALUE", "set a variable of all tasks; may be repeated"),
    with_value(&["--ship-libcxx"], "DIR", "ship the libstdc++.so.6 in DIR and load it first"),
];

/// Note for flags of jars.
pub(crate) const NO_JAR: &str = "ydl needs no jar, no class path and no build on this machine";
const KUBERNETES: &str = "Kubernetes";

/// Flags for dmlc-core's log.
pub(crate) const LOG_FLAGS: &[Flag] = &[
    ignored(&["--log-level"], "progress is always printed; see `ydl status` and `ydl logs`"),
    ignored(&["--log-file"], "logs are stored with the job; `ydl logs` prints them"),
];

/// Flags that have no effect.
pub(crate) const IGNORED_FLAGS: &[Flag] = &[
    ignored(&["--host-ip"], "the tracker runs in the job's master, whose address every task gets"),
    ignored(&["--yarn-app-classpath"], NO_JAR),
    ignored(&["--yarn-app-dir"], NO_JAR),
];

/// Flags for other types of clusters.
pub(crate) const REJECTED_FLAGS: &[Flag] = &[
    rejected(&["--host-file", "--hostfile", "-H"], "MPI and ssh"),
    rejected(&["--sync-dst-dir"], "ssh"),
    rejected(&["--sge-log-dir"], "SGE"),
    rejected(&["--mesos-master"], "Mesos"),
    rejected(&["--kube-namespace"], KUBERNETES),
    rejected(&["--kube-worker-image"], KUBERNETES),
    rejected(&["--kube-server-image"], KUBERNETES),
    rejected(&["--kube-worker-template"], KUBERNETES),
    rejected(&["--kube-server-template"], KUBERNETES),
    rejected(&["--slurm-worker-nodes"], "Slurm"),
    rejected(&["--slurm-server-nodes"], "Slurm"),
];

/// Returns the cluster type of a job from a flag or the user's shell, if given. Other systems' types are an error.
pub(crate) fn cluster(
    args: &ParsedArgs,
    caller: &CallerEnv,
    flag: &str,
) -> Result<Option<Cluster>, Report> {
    let given = args.last(flag).map(|arg| arg.value.as_str());
    match given.or(caller.variable("DMLC_SUBMIT_CLUSTER")) {
        None => Ok(None),
        Some("yarn") => Ok(Some(Cluster::Yarn)),
        Some("local") => Ok(Some(Cluster::Local)),
        Some(other @ ("slurm" | "mpi" | "sge" | "ssh" | "mesos" | "kubernetes")) => Err(args
            .error(format!("cluster type `{other}` is not supported"))
            .hint("use `yarn`, or `local` for this machine")),
        Some(other) => Err(args
            .error(format!("unknown cluster type `{other}`"))
            .hint("use `yarn`, or `local` for this machine")),
    }
}

/// Returns the required number of workers.
pub(crate) fn workers<'a>(args: &'a ParsedArgs, flag: &str) -> Result<&'a FlagValue, Report> {
    args.last(flag).ok_or_else(|| {
        args.error("the number of workers is missing").hint(format!("add `{flag} N`"))
    })
}

/// Number and resources of workers and servers.
pub(crate) struct RoleSizes<'a> {
    /// Number of workers.
    pub workers: &'a FlagValue,
    /// Number of servers; 0 makes a Rabit job.
    pub servers: u32,
    /// Flags for memory and virtual cores of workers and of servers.
    pub flags: [(&'static str, &'static str, &'static str); 2],
}

/// Adds framework and roles with their sizes, and the variables with the sizes.
pub(crate) fn add_roles(builder: &mut JobFileBuilder, args: &ParsedArgs, sizes: &RoleSizes<'_>) {
    let framework = match sizes.servers {
        0 => "xgboost",
        _ => "mxnet",
    };
    builder.put_default(&["framework"], framework);
    builder.put_arg(&["roles", "worker", "instances"], sizes.workers);
    if sizes.servers > 0 {
        builder.put_default(&["roles", "server", "instances"], sizes.servers);
    }
    for (role, memory, vcores) in sizes.flags {
        let upper = role.to_uppercase();
        let mib =
            args.last(memory).map_or(Some(1024), |arg| JobFileBuilder::memory_mib(&arg.value));
        let cores = args.last(vcores).map_or("1", |arg| arg.value.as_str());
        // Tasks get the sizes of both roles.
        if let Some(mib) = mib {
            job_variable(builder, &format!("DMLC_{upper}_MEMORY_MB"), &mib.to_string());
        }
        job_variable(builder, &format!("DMLC_{upper}_CORES"), cores);
        if role == "worker" || sizes.servers > 0 {
            builder.put_flag(&["roles", role, "memory"], args, memory);
            builder.put_flag(&["roles", role, "vcores"], args, vcores);
        }
    }
    let cluster = match builder.is_local() {
        true => "local",
        false => "yarn",
    };
    job_variable(builder, "DMLC_JOB_CLUSTER", cluster);
}

/// Sets a variable of the job.
pub(crate) fn job_variable(builder: &mut JobFileBuilder, name: &str, value: &str) {
    builder.variable(None, name, value, Location::Whole);
}

/// Forwards variables of the user's shell, selected by prefix.
pub(crate) fn forward_variables(builder: &mut JobFileBuilder, caller: &CallerEnv) {
    for (name, value) in &caller.variables {
        let selected = ["DMLC_", "AWS_", "rabit_"].iter().any(|it| name.starts_with(it));
        if !selected || RESERVED_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        if SECRETS.iter().any(|word| name.contains(word)) {
            if builder.is_local() {
                // Programs inherit it.
                continue;
            }
            let note = format!(
                "`{name}` is not passed on: viewers of a job see its variables; pass it with `--env {name}=…`"
            );
            builder.notes.push(note);
            continue;
        }
        job_variable(builder, name, value);
    }
}

/// Sets the attempts of a task. On a cluster a failed task is retried on another node, on one machine only if a flag says so.
pub(crate) fn set_attempts(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    caller: &CallerEnv,
) -> Result<(), Report> {
    let attempts = args.count("--max-attempts")?;
    let retries = args.count("--local-num-attempt")?;
    if builder.is_local() {
        let limit = attempts.map(|attempts| attempts.saturating_sub(1));
        builder.put_default(&["restart", "limit"], retries.or(limit).unwrap_or(0));
        return Ok(());
    }
    let attempts = match (attempts, caller.variable("DMLC_MAX_ATTEMPT")) {
        (Some(attempts), _) => attempts,
        (None, None) => ATTEMPTS,
        (None, Some(value)) => value.trim().parse().map_err(|_| {
            let what = format!("`DMLC_MAX_ATTEMPT` is `{value}`, which is not a number");
            args.error(what).hint("write `--max-attempts N`")
        })?,
    };
    builder.put_default(&["restart", "limit"], attempts.saturating_sub(1));
    builder.put_default(&["node_exclusion", "failures"], 1);
    builder.put_default(&["node_exclusion", "timeout"], "30d");
    Ok(())
}

/// Sets the staging directory: a directory of the user below the named one, which may be shared.
pub(crate) fn set_staging(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    caller: &CallerEnv,
    flag: &str,
) {
    if let Some(arg) = args.last(flag) {
        let users = ["HADOOP_PROXY_USER", "HADOOP_USER_NAME", "USER", "LOGNAME"];
        let user = users.iter().find_map(|name| caller.variable(name));
        let below = user.map_or("ydl".to_owned(), |user| format!("ydl-{user}"));
        let path = format!("{}/{below}", arg.value.trim_end_matches('/'));
        let path = Node::text(arg.location(), path);
        builder.put(&["staging"], path);
    }
}
