//! `ydl board`: runs TensorBoard in a task, on the port reserved by the task's agent.
//!
//! TensorBoard reads HDFS only if TensorFlow, Hadoop's libraries and a JVM are installed. Therefore a second process
//! downloads the log directory to the node, and TensorBoard reads the local copy.

mod download;

use crate::{
    cli,
    client::{cluster::configuration, master_client::block_on},
};
use std::{fs, io, os::unix::process::CommandExt, path::PathBuf, process::Command};
use yarn_native::config::{Config, Environment};
use ydl_os::{
    env, reason,
    report::{Exit, Report},
};
use ydl_proto::{files::HadoopConfig, version::from_json};
use ydl_storage::hdfs;

/// Directory of downloaded files, below the task's working directory.
const MIRROR_DIR: &str = "logdir";
/// Maximum size of the configuration file.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Executes TensorBoard, or with `--mirror` downloads its log directory.
pub(crate) fn run(args: cli::BoardArgs) -> Result<Exit, Report> {
    if let Some(url) = &args.mirror {
        let to = args.logdir.unwrap_or_else(|| MIRROR_DIR.to_owned());
        return block_on(download::follow(config()?, url.clone(), PathBuf::from(to)));
    }
    let port = variable(&format!("{}HTTP", env::PORT_PREFIX))?;
    let job = variable(env::JOB)?;
    let logdir = args.logdir.map(|dir| dir.replace("{job}", &job));
    let checkpoint_url = || std::env::var(env::CHECKPOINT_URL).ok();
    let dir = match logdir.or_else(checkpoint_url) {
        Some(dir) => dir,
        None => variable(env::CHECKPOINT)?,
    };
    let dir = match dir.contains("://") {
        false => dir,
        true => {
            // The agent ends this process with the task.
            let spawned = std::env::current_exe().and_then(|program| {
                fs::create_dir_all(MIRROR_DIR)?;
                let args = ["board", "--mirror", &dir, "--logdir", MIRROR_DIR];
                Command::new(program).args(args).spawn()
            });
            spawned.map_err(|error| {
                Report::internal(format!(
                    "cannot start the download of `{dir}`: {}",
                    reason(&error)
                ))
            })?;
            MIRROR_DIR.to_owned()
        }
    };
    let args = ["--logdir", &dir, "--host", "127.0.0.1", "--port", &port];
    let error = Command::new("tensorboard").args(args).exec();
    if error.kind() == io::ErrorKind::NotFound {
        let what = "`tensorboard` is not installed in the job's environment";
        let hint = "install it with `pip install tensorboard`";
        return Err(Report::bad_input(what).hint(hint));
    }
    let what = format!("cannot run `tensorboard`: {}", reason(&error));
    Err(Report::internal(what))
}

fn variable(name: &str) -> Result<String, Report> {
    let found = std::env::var(name).ok();
    found.ok_or_else(|| {
        Report::bad_input(format!("`{name}` is not set: this process is not a task of a job"))
    })
}

/// Returns the Hadoop configuration sent with the job, or that of this machine.
fn config() -> Result<Config, Report> {
    let certificate = std::env::var_os(env::CERTIFICATE_FILE).map(PathBuf::from);
    let file = certificate.and_then(|file| Some(file.parent()?.join("hadoop.json")));
    if let Some(file) = file.filter(|file| file.exists()) {
        let cannot = |why: &dyn std::fmt::Display| {
            Report::internal(format!("cannot read `{}`: {why}", file.display()))
        };
        let bytes = fs::metadata(&file).map_err(|error| cannot(&error))?.len();
        if bytes > CONFIG_BYTES_MAX {
            return Err(cannot(&"it is too large"));
        }
        let text = fs::read(&file).map_err(|error| cannot(&error))?;
        let HadoopConfig { properties } = from_json(&text)
            .map_err(|error| Report { hint: error.hint().map(str::to_owned), ..cannot(&error) })?;
        return Ok(hdfs::config(&properties, Environment::of_process()));
    }
    let local = configuration()?;
    local.ok_or_else(|| Report::bad_input("this machine has no Hadoop configuration"))
}
