//! `ydl board`: TensorBoard inside a task, on the port that its agent holds and with the directory that is meant.
//!
//! TensorBoard reads HDFS only where TensorFlow, Hadoop's libraries and a JVM are in its environment. So what it looks
//! at is brought to its node instead, by a second process that follows what others write.

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
const MIRRORED: &str = "logdir";
/// The largest configuration that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Becomes TensorBoard, or that which brings what it looks at.
pub fn run(args: cli::BoardArgs) -> Result<Exit, Report> {
    if let Some(url) = &args.mirror {
        let to = args.logdir.unwrap_or_else(|| MIRRORED.to_owned());
        return block_on(download::follow(config()?, url.clone(), PathBuf::from(to)));
    }
    let port = variable(&format!("{}HTTP", env::PORT_PREFIX))?;
    let job = variable(env::JOB)?;
    let named = args.logdir.map(|dir| dir.replace("{job}", &job));
    let checkpoint_url = || std::env::var(env::CHECKPOINT_URL).ok();
    let dir = match named.or_else(checkpoint_url) {
        Some(dir) => dir,
        None => variable(env::CHECKPOINT)?,
    };
    let dir = match dir.contains("://") {
        false => dir,
        true => {
            // It ends with the task, as everything does that a program leaves behind.
            let spawned = std::env::current_exe().and_then(|this| {
                fs::create_dir_all(MIRRORED)?;
                let args = ["board", "--mirror", &dir, "--logdir", MIRRORED];
                Command::new(this).args(args).spawn()
            });
            spawned.map_err(|error| {
                Report::internal(format!("cannot bring `{dir}` here: {}", reason(&error)))
            })?;
            MIRRORED.to_owned()
        }
    };
    let args = ["--logdir", &dir, "--host", "127.0.0.1", "--port", &port];
    let error = Command::new("tensorboard").args(args).exec();
    if error.kind() == io::ErrorKind::NotFound {
        let what = "there is no `tensorboard` in the job's environment";
        let hint = "install it there: `pip install tensorboard`";
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

/// The configuration that came with the job, or that of this machine.
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
    let here = configuration()?;
    here.ok_or_else(|| Report::bad_input("there is no Hadoop configuration here"))
}
