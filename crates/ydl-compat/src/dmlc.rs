//! Shared parts of the commands of dmlc-core: a job with a Rabit tracker, or one with parameter servers.

use super::{
    command,
    flags::{Flag, Said, Typed, ahead, noted, refused, used},
    sheet::{Here, Sheet, count},
};
use crate::sheet::Cluster;
use ydl_jobfile::Location;
use ydl_os::report::Report;

/// Default number of attempts of a task.
pub const ATTEMPTS: u32 = 3;

/// Variables that ydl sets itself: those of the user's shell are ignored.
const OURS: [&str; 21] = [
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
/// Substrings of variables that must not be visible to viewers of a job.
const SECRETS: [&str; 3] = ["SECRET", "TOKEN", "PASSWORD"];

/// The flags that name memory and virtual cores of each role.
pub const BY_ROLE: [(&str, &str, &str); 2] = [
    ("worker", "--worker-memory", "--worker-cores"),
    ("server", "--server-memory", "--server-cores"),
];

/// Flags of resources, queue and retries.
pub const SIZES: &[Flag] = &[
    used(&["--worker-cores"], "N", "virtual cores of a worker (1)"),
    used(&["--server-cores"], "N", "virtual cores of a server (1)"),
    used(&["--worker-memory"], "SIZE", "memory of a worker, as 1g, 512m or 1.5g (1g)"),
    used(&["--server-memory"], "SIZE", "memory of a server (1g)"),
    used(&["--jobname"], "NAME", "the job's name; its program's if left out"),
    used(&["--queue"], "NAME", "the queue on a cluster"),
    // dmlc-core's own had none of that name: behind a command it is the program's.
    ahead(used(
        &["--max-attempts"],
        "N",
        "how often a task is tried; else DMLC_MAX_ATTEMPT, or 3 on a cluster",
    )),
    used(
        &["--local-num-attempt"],
        "N",
        "on this machine: so many failures of a task are repaired (0)",
    ),
    used(&["--hdfs-tempdir"], "DIR", "where in HDFS what travels is kept, below ydl-USER"),
];

/// Flags of files and variables that are shipped with a job.
pub const TRAVELS: &[Flag] = &[
    used(&["--auto-file-cache"], "BOOL", "whether files of the command travel with the job (true)"),
    used(
        &["--files"],
        "FILE[#NAME]",
        "a file or directory that travels with the job; may be repeated",
    ),
    used(
        &["--archives"],
        "FILE",
        "a .zip or .tar… that is unpacked in every task's directory; may be repeated",
    ),
    used(&["--env"], "NAME=VALUE", "a variable of every task; may be repeated"),
    used(
        &["--ship-libcxx"],
        "DIR",
        "the libstdc++.so.6 in it travels with the job and is found first",
    ),
];

/// Why there is nothing to say about jars.
pub const NO_JAR: &str = "ydl needs no jar, no class path and no build on this machine";
const OF_KUBERNETES: &str = "Kubernetes";

/// Flags of dmlc-core's own log.
pub const LOGS: &[Flag] = &[
    noted(
        &["--log-level"],
        "what happens is told as it happens; `ydl status` and `ydl logs` tell the rest",
    ),
    noted(&["--log-file"], "what happens is kept with the job; `ydl logs` prints it"),
];

/// Flags that have no effect.
pub const NOTED: &[Flag] = &[
    noted(&["--host-ip"], "the tracker is in the job's master, which everybody finds"),
    noted(&["--yarn-app-classpath"], NO_JAR),
    noted(&["--yarn-app-dir"], NO_JAR),
];

/// Flags of other systems' clusters.
pub const OTHERS: &[Flag] = &[
    refused(&["--host-file", "--hostfile", "-H"], "MPI and ssh"),
    refused(&["--sync-dst-dir"], "ssh"),
    refused(&["--sge-log-dir"], "SGE"),
    refused(&["--mesos-master"], "Mesos"),
    refused(&["--kube-namespace"], OF_KUBERNETES),
    refused(&["--kube-worker-image"], OF_KUBERNETES),
    refused(&["--kube-server-image"], OF_KUBERNETES),
    refused(&["--kube-worker-template"], OF_KUBERNETES),
    refused(&["--kube-server-template"], OF_KUBERNETES),
    refused(&["--slurm-worker-nodes"], "Slurm"),
    refused(&["--slurm-server-nodes"], "Slurm"),
];

/// Returns the target of a job, from a flag or the user's shell; nothing where neither says so. Other systems' clusters are
/// refused by their names.
pub fn cluster(typed: &Typed, here: &Here, flag: &str) -> Result<Option<Cluster>, Report> {
    let said = typed.last(flag).map(|said| said.value.as_str());
    match said.or(here.variable("DMLC_SUBMIT_CLUSTER")) {
        None => Ok(None),
        Some("yarn") => Ok(Some(Cluster::Yarn)),
        Some("local") => Ok(Some(Cluster::Local)),
        Some(other @ ("slurm" | "mpi" | "sge" | "ssh" | "mesos" | "kubernetes")) => Err(typed
            .wrong(format!("jobs do not run by `{other}`"))
            .hint("they run on `yarn` or `local`, which is this machine")),
        Some(other) => Err(typed
            .wrong(format!("`{other}` is no cluster"))
            .hint("write `yarn`, or `local` for this machine")),
    }
}

/// Returns the required number of workers.
pub fn workers<'a>(typed: &'a Typed, flag: &str) -> Result<&'a Said, Report> {
    typed.last(flag).ok_or_else(|| {
        typed.wrong("it is not said how many workers there are").hint(format!("write `{flag} N`"))
    })
}

/// Number and resources of workers and servers.
pub struct Sizes<'a> {
    /// Number of workers.
    pub workers: &'a Said,
    /// Number of servers; 0 makes a Rabit job.
    pub servers: u32,
    /// The flags that name memory and virtual cores, for workers and for servers.
    pub flags: [(&'static str, &'static str, &'static str); 2],
}

/// Roles, framework and their sizes, and the variables that tell programs of them.
pub fn roles(sheet: &mut Sheet, typed: &Typed, sizes: &Sizes<'_>) {
    let framework = match sizes.servers {
        0 => "xgboost",
        _ => "mxnet",
    };
    sheet.put_own(&["framework"], framework);
    sheet.put_said(&["roles", "worker", "instances"], sizes.workers);
    if sizes.servers > 0 {
        sheet.put_own(&["roles", "server", "instances"], sizes.servers);
    }
    for (role, memory, vcores) in sizes.flags {
        let large = role.to_uppercase();
        let mib = typed.last(memory).map_or(Some(1024), |said| Sheet::memory_mib(&said.value));
        let cores = typed.last(vcores).map_or("1", |said| said.value.as_str());
        // Programs may ask for the other role's, too.
        if let Some(mib) = mib {
            own_variable(sheet, &format!("DMLC_{large}_MEMORY_MB"), &mib.to_string());
        }
        own_variable(sheet, &format!("DMLC_{large}_CORES"), cores);
        if role == "worker" || sizes.servers > 0 {
            sheet.put_flag(&["roles", role, "memory"], typed, memory);
            sheet.put_flag(&["roles", role, "vcores"], typed, vcores);
        }
    }
    let cluster = match sheet.cluster {
        Some(Cluster::Yarn) => Some("yarn"),
        Some(Cluster::Local) => Some("local"),
        None => None,
    };
    if let Some(cluster) = cluster {
        own_variable(sheet, "DMLC_JOB_CLUSTER", cluster);
    }
}

fn own_variable(sheet: &mut Sheet, name: &str, value: &str) {
    sheet.variable(None, name, value, Location::Whole);
}

/// Forwards variables of the user's shell, selected by prefix.
pub fn forwarded(sheet: &mut Sheet, here: &Here) {
    for (name, value) in &here.variables {
        let begins = ["DMLC_", "AWS_", "rabit_"].iter().any(|it| name.starts_with(it));
        if !begins || OURS.contains(&name.as_str()) {
            continue;
        }
        if SECRETS.iter().any(|word| name.contains(word)) {
            let note = format!(
                "`{name}` stays here: whoever may look at a job sees its variables; `--env {name}=…` sends it all the same"
            );
            sheet.notes.push(note);
            continue;
        }
        own_variable(sheet, name, value);
    }
}

/// The attempts of a task: on a cluster a failed one is repeated elsewhere, its node avoided; on one machine only if that is
/// said.
pub fn attempts(sheet: &mut Sheet, typed: &Typed, here: &Here) -> Result<(), Report> {
    let said = count(typed, "--max-attempts")?;
    let repaired = count(typed, "--local-num-attempt")?;
    if sheet.is_local() {
        let tries = said.map(|most| most.saturating_sub(1));
        sheet.put_own(&["restart", "limit"], repaired.or(tries).unwrap_or(0));
        return Ok(());
    }
    let most = match (said, here.variable("DMLC_MAX_ATTEMPT")) {
        (Some(most), _) => most,
        (None, None) => ATTEMPTS,
        (None, Some(value)) => value.trim().parse().map_err(|_| {
            let what = format!("`DMLC_MAX_ATTEMPT` is `{value}`, which is no number");
            typed.wrong(what).hint("write `--max-attempts N`")
        })?,
    };
    sheet.put_own(&["restart", "limit"], most.saturating_sub(1));
    sheet.put_own(&["node_exclusion", "failures"], 1);
    sheet.put_own(&["node_exclusion", "timeout"], "30d");
    Ok(())
}

/// The program's words with the files among them shipped, unless that is not wanted. `python` says that the first word may be a
/// script of Python's.
pub fn command(
    sheet: &mut Sheet,
    typed: &Typed,
    flag: &str,
    python: bool,
) -> Result<Vec<String>, Report> {
    if typed.command.is_empty() {
        return Err(typed
            .wrong("there is no command to run")
            .hint(format!("write `{} … python train.py`", typed.door)));
    }
    let said = typed.last(flag);
    let wanted = match said.map(|said| said.value.to_lowercase()).as_deref() {
        None | Some("1" | "true" | "yes" | "on") => true,
        Some("0" | "false" | "no" | "off") => false,
        Some(_) => {
            let written = said.map_or(flag, |said| said.written.as_str());
            let what = format!("{written}: this is neither `true` nor `false`");
            return Err(Report::bad_input(what));
        }
    };
    let words = command::meant(typed)?;
    if !wanted {
        return Ok(words);
    }
    if let Some(program) = command::program(&words, python)
        && !command::will_be_there(sheet, typed, program)
    {
        let what = format!("the program `{program}` is not here");
        let hint = "name a file of this machine, which travels; what every node has is called by its whole path";
        return Err(typed.wrong(what).hint(hint));
    }
    Ok(command::shipped(sheet, &words))
}

/// Files, archives and a C++ library that travel with the job.
pub fn travels(sheet: &mut Sheet, typed: &Typed) {
    for said in typed.all("--files") {
        command::files(sheet, &said.value, &said.at());
    }
    let mut names = Vec::new();
    for said in typed.all("--archives") {
        names.push(super::sheet::last_of(&said.value).to_owned());
        if let Err(what) = sheet.archive(&said.value, said.at()) {
            sheet.wrong(said, what, "unpack it, and name the files with `--files`");
        }
    }
    if !names.is_empty() {
        own_variable(sheet, "DMLC_JOB_ARCHIVES", &names.join(":"));
    }
    if let Some(said) = typed.last("--ship-libcxx") {
        let path = format!("{}/libstdc++.so.6", said.value.trim_end_matches('/'));
        sheet.file(&path, None, said.at());
        sheet.before("export LD_LIBRARY_PATH=.:$LD_LIBRARY_PATH".to_owned());
    }
}

/// Sets the staging directory: a directory of the user below the named one, which may be shared.
pub fn staging(sheet: &mut Sheet, typed: &Typed, here: &Here, flag: &str) {
    if let Some(said) = typed.last(flag) {
        let users = ["HADOOP_PROXY_USER", "HADOOP_USER_NAME", "USER", "LOGNAME"];
        let user = users.iter().find_map(|name| here.variable(name));
        let below = user.map_or("ydl".to_owned(), |user| format!("ydl-{user}"));
        let place = format!("{}/{below}", said.value.trim_end_matches('/'));
        let place = ydl_jobfile::Node::text(said.at(), place);
        sheet.put(&["staging"], place);
    }
}
