//! Yarn-TF's command line: Hadoop's DistributedShell with a bundle of code, mounts, outputs and TensorFlow's roles.

mod mounts;
mod shell;

use super::{
    Door, Leads, command,
    flags::{Flag, Said, Style, Typed, list, noted, noted_switch, refused, used},
    sheet::{Here, Sheet, count, last_of},
};
use ydl_jobfile::Node;
use ydl_os::report::Report;

pub const DOOR: Door = Door {
    names: &["yarn-tf"],
    about: "Run TensorFlow's parameter servers and trainers, or any command in many containers",
    usage: "--num_parameter_servers N --num_trainers N --tar CODE.tar --shell_command 'python trainer.py' …",
    style: Style::Gnu,
    flags: &[FLAGS, shell::FLAGS, INERT],
    leads: Leads::Job(translate),
};

const FLAGS: &[Flag] = &[
    used(&["--num_parameter_servers"], "N", "parameter servers of TensorFlow"),
    used(&["--num_trainers"], "N", "workers of TensorFlow"),
    used(&["--tar"], "FILE", "the code, here or in HDFS, unpacked in every task's directory"),
    list(
        &["--mounts", "--mount"],
        "SOURCE:TARGET[:ro]",
        "what of a node's disks a task sees, and where",
    ),
    list(
        &["--output", "--outputs"],
        "SOURCE:DESTINATION",
        "what is copied when a worker has ended: into HDFS (with --cluster local to this machine), or below a mount",
    ),
    used(&["--docker_image"], "IMAGE", "run everything in this image"),
    used(&["--cluster"], "CLUSTER", "yarn, or local for this machine (yarn)"),
];

const OF_DS: &str = "DistributedShell's own master had it";
const INERT: &[Flag] = &[
    noted(&["--jar"], "ydl needs no jar"),
    noted(&["--log_properties"], OF_DS),
    noted(&["--rolling_log_pattern"], "logs are carried to HDFS while tasks run"),
    noted_switch(
        &["--keep_containers_across_application_attempts"],
        "containers always outlive their master",
    ),
    noted(
        &["--attempt_failures_validity_interval"],
        "`master: {attempts: N}` in a job file says how often it is started",
    ),
    noted_switch(&["--debug"], "`ydl status` and `ydl logs` tell what happened"),
    noted(&["--domain"], "a job's facts are kept with the job, and not in a timeline server"),
    noted_switch(
        &["--create"],
        "a job's facts are kept with the job, and not in a timeline server",
    ),
    noted(&["--flow_name"], "a job's facts are kept with the job, and not in a timeline server"),
    noted(&["--flow_version"], "a job's facts are kept with the job, and not in a timeline server"),
    noted(&["--flow_run_id"], "a job's facts are kept with the job, and not in a timeline server"),
    noted(&["--shell_cmd_priority"], "containers are asked for together"),
    noted(&["--container_type"], "containers are guaranteed ones"),
    noted_switch(&["--promote_opportunistic_after_start"], "containers are guaranteed ones"),
    noted_switch(&["--enforce_execution_type"], "containers are guaranteed ones"),
    noted(
        &["--container_retry_error_codes"],
        "every failure of a program is repaired as often as is said",
    ),
    refused(
        &["--placement_spec"],
        "DistributedShell; `placement` in a job file says where tasks go",
    ),
    refused(
        &["--master_resource_profile"],
        "resource profiles; `--master_resources` says what it needs",
    ),
    refused(
        &["--container_resource_profile"],
        "resource profiles; `--container_resources` says what a task needs",
    ),
];

fn translate(typed: &mut Typed, here: &Here) -> Result<Sheet, Report> {
    let mut sheet = Sheet::empty();
    sheet.cluster = match typed.last("--cluster") {
        Some(_) => super::dmlc::cluster(typed, here, "--cluster")?,
        None => Some(crate::sheet::Cluster::Yarn),
    };
    let words = shell::words(&mut sheet, typed)?;
    let script = typed.last("--shell_command");
    let script = script.or(typed.last("--shell_script"));
    let script = script.iter().flat_map(|said| said.value.split_whitespace());
    let arguments = typed.all("--shell_args").map(|said| said.value.as_str());
    let named: Vec<_> = script.chain(arguments).map(str::to_owned).collect();
    sheet.name(typed.last("--appname"), &named);
    let servers = count(typed, "--num_parameter_servers")?.unwrap_or(0);
    let trainers = typed.last("--num_trainers");
    // Without either it is a command in so many containers, as DistributedShell has it.
    let distributed = servers > 0 || trainers.is_some();
    let roles: &[&str] = match (distributed, servers) {
        (true, 1..) => &["worker", "ps"],
        _ => &["worker"],
    };
    if distributed {
        sheet.put_own(&["framework"], "tensorflow");
        sheet.put_own(&["cluster_flags"], true);
    }
    match (trainers, typed.last("--num_containers")) {
        (Some(said), _) => sheet.put_said(&["roles", "worker", "instances"], said),
        (None, Some(said)) if !distributed => {
            sheet.put_said(&["roles", "worker", "instances"], said)
        }
        _ => sheet.put_own(&["roles", "worker", "instances"], 1),
    }
    if distributed && typed.has("--num_containers") {
        let note =
            "`--num_containers` changes nothing: `--num_trainers` says how many workers there are";
        sheet.notes.push(note.to_owned());
    }
    if servers > 0 {
        sheet.put_flag(&["roles", "ps", "instances"], typed, "--num_parameter_servers");
    }
    shell::sizes(&mut sheet, typed, roles);
    shell::manners(&mut sheet, typed);
    image(&mut sheet, typed);
    if let Some(said) = typed.last("--tar")
        && let Err(what) = sheet.archive(&said.value, said.at())
    {
        sheet.wrong(said, what, "make one with `tar -cf code.tar …`");
    }
    for said in typed.all("--localize_files") {
        for path in said.value.split(',').filter(|path| !path.is_empty()) {
            command::files(&mut sheet, path, &said.at());
        }
    }
    let mounts = mounts::mounts(&mut sheet, typed);
    let several = workers(typed) != Some(1);
    mounts::outputs(&mut sheet, typed, &mounts, several);
    sheet.command("worker", &typed.door, &words);
    Ok(sheet)
}

/// Returns the number of workers, if valid.
fn workers(typed: &Typed) -> Option<u32> {
    let said = typed.last("--num_trainers");
    let said = said.or(typed.last("--num_containers"));
    said.map_or(Some(1), |said| said.value.parse().ok())
}

/// The image that everything runs in, if there is one, and what is said of it.
fn image(sheet: &mut Sheet, typed: &Typed) {
    let named = typed.last("--docker_image");
    let told = shell::variables(sheet, typed, named.is_some());
    for (key, node) in told.keys {
        sheet.put(&["environment", key], node);
    }
    sheet.put_flag(&["environment", "docker"], typed, "--docker_image");
    sheet.put_flag(&["environment", "login"], typed, "--docker_client_config");
}

/// Translates resources such as `memory-mb=2048,vcores=2,yarn.io/gpu=1`.
fn resources(sheet: &mut Sheet, path: &[&str], said: &Said) {
    for pair in said.value.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            sheet.wrong(
                said,
                format!("there is no `=` in `{pair}`"),
                "write `vcores=2,memory-mb=2048`",
            );
            continue;
        };
        let below = |last: &'static str| [path, &[last]].concat();
        match name {
            "memory-mb" | "memory" => {
                let size = mebibytes(value);
                sheet.put(&below("memory"), Node::text(said.at(), size));
            }
            "vcores" => sheet.put(&below("vcores"), Node::plain(said.at(), value)),
            "yarn.io/gpu" | "gpu" if path.contains(&"ps") => {
                let note =
                    format!("`{name}` is for workers alone: parameter servers compute nothing");
                sheet.notes.push(note);
            }
            "yarn.io/gpu" | "gpu" => sheet.put(&below("gpus"), Node::plain(said.at(), value)),
            other => {
                let mut whole = below("resources");
                whole.push(other);
                sheet.put(&whole, Node::plain(said.at(), value));
            }
        }
    }
}

/// A number alone counts in MiB, as YARN does.
fn mebibytes(text: &str) -> String {
    match text.chars().all(|c| c.is_ascii_digit()) {
        true => format!("{text}m"),
        false => text.to_owned(),
    }
}

/// The name of a file as a task finds it.
fn script_of(said: &Said) -> String {
    format!("./{}", last_of(&said.value))
}
