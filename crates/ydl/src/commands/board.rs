//! `ydl board`: TensorBoard inside a task, on the port that its agent holds and with the directory that is meant.
//!
//! TensorBoard reads HDFS only where TensorFlow, Hadoop's libraries and a JVM are in its environment. So what it looks at is
//! brought to its node instead, by a second process that follows what others write.

use super::reach::block_on;
use crate::{
    cli, data,
    data::walk,
    env,
    hdfs::{self, Hdfs, Ways},
    mirror::configuration,
    os::reason,
    report::{Exit, Report},
};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tokio::time::{Instant, sleep};
use yarn_native::config::{Config, Environment};

/// Where what is brought lies, below the task's working directory.
const MIRRORED: &str = "logdir";
/// Between two looks at what is in HDFS.
const EVERY: Duration = Duration::from_secs(5);
/// How long one of them may take.
const LOOK_MAX: Duration = Duration::from_secs(300);
/// Read at once.
const PIECE_BYTES: usize = 2 << 20;
/// The largest configuration that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Becomes TensorBoard, or that which brings what it looks at.
pub fn run(args: cli::Board) -> Result<Exit, Report> {
    if let Some(url) = &args.mirror {
        let to = args.logdir.unwrap_or_else(|| MIRRORED.to_owned());
        return block_on(follow(url.clone(), PathBuf::from(to)));
    }
    let port = variable(&format!("{}HTTP", env::PORT_PREFIX))?;
    let job = variable(env::JOB)?;
    let said = args.logdir.map(|dir| dir.replace("{job}", &job));
    let saved = || std::env::var(env::CHECKPOINT_URL).ok();
    let dir = match said.or_else(saved) {
        Some(dir) => dir,
        None => variable(env::CHECKPOINT)?,
    };
    let dir = match dir.contains("://") {
        false => dir,
        true => {
            // It ends with the task, as everything does that a program leaves behind.
            let begun = std::env::current_exe().and_then(|this| {
                fs::create_dir_all(MIRRORED)?;
                let words = ["board", "--mirror", &dir, "--logdir", MIRRORED];
                Command::new(this).args(words).spawn()
            });
            begun.map_err(|error| {
                Report::trouble(format!("cannot bring `{dir}` here: {}", reason(&error)))
            })?;
            MIRRORED.to_owned()
        }
    };
    let words = ["--logdir", &dir, "--host", "127.0.0.1", "--port", &port];
    let error = Command::new("tensorboard").args(words).exec();
    if error.kind() == io::ErrorKind::NotFound {
        let what = "there is no `tensorboard` in the job's environment";
        let hint = "install it there: `pip install tensorboard`";
        return Err(Report::bad_input(what).hint(hint));
    }
    let what = format!("cannot run `tensorboard`: {}", reason(&error));
    Err(Report::trouble(what))
}

fn variable(name: &str) -> Result<String, Report> {
    let found = std::env::var(name).ok();
    found.ok_or_else(|| Report::bad_input(format!("`{name}` is not set: this is no task of a job")))
}

/// Brings what TensorBoard reads, again and again.
async fn follow(url: String, to: PathBuf) -> Result<Exit, Report> {
    let ways = Ways::of(config()?)?;
    let mut known = BTreeMap::new();
    let mut said = String::new();
    loop {
        let deadline = Instant::now() + LOOK_MAX;
        match look(&ways, &url, &to, &mut known, deadline).await {
            Ok(()) => said.clear(),
            // Said once: what stands in the way may stand there for hours.
            Err(report) if report.what != said => {
                eprintln!("ydl: `{url}` cannot be shown yet: {}", report.what);
                said = report.what;
            }
            Err(_) => {}
        }
        sleep(EVERY).await;
    }
}

/// The configuration that came with the job, or that of this machine.
fn config() -> Result<Config, Report> {
    let certificate = std::env::var_os(env::CERTIFICATE_FILE).map(PathBuf::from);
    let file = certificate.and_then(|file| Some(file.parent()?.join("hadoop.json")));
    if let Some(file) = file.filter(|file| file.exists()) {
        let cannot = |why: &dyn std::fmt::Display| {
            Report::trouble(format!("cannot read `{}`: {why}", file.display()))
        };
        let bytes = fs::metadata(&file).map_err(|error| cannot(&error))?.len();
        if bytes > CONFIG_BYTES_MAX {
            return Err(cannot(&"it is too large"));
        }
        let text = fs::read(&file).map_err(|error| cannot(&error))?;
        let pairs: BTreeMap<String, String> =
            serde_json::from_slice(&text).map_err(|error| cannot(&error))?;
        return Ok(hdfs::config(&pairs, Environment::of_process()));
    }
    let here = configuration()?;
    here.ok_or_else(|| Report::bad_input("there is no Hadoop configuration here"))
}

/// How much of a file is here, of which state of it.
type Known = BTreeMap<String, (u64, u64, u64)>;

async fn look(
    ways: &Ways,
    url: &str,
    to: &Path,
    known: &mut Known,
    deadline: Instant,
) -> Result<(), Report> {
    let hdfs = ways.to(url, deadline).await?;
    let found = walk(url.trim_end_matches('/'), Some(hdfs.clone()), deadline).await?;
    let mut failed = None;
    for file in found.files.iter().filter(|file| is_shown(&file.name)) {
        let state = (file.modified_ms, file.bytes);
        let (modified_ms, listed, here) = known.get(&file.name).copied().unwrap_or_default();
        if (modified_ms, listed) == state && here == listed {
            continue;
        }
        let Some(place) = data::below(to, &file.name) else {
            continue;
        };
        // What became shorter is another file; what grew goes on where it ended, so that TensorBoard can, too.
        let from = if file.bytes < here { 0 } else { here };
        match copy(&hdfs, &file.url, &place, from, deadline).await {
            Ok(here) => drop(known.insert(file.name.clone(), (state.0, state.1, here))),
            Err(report) => failed = Some(report),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Whether TensorBoard reads it: beside what is to be shown, a directory of checkpoints holds what is large.
fn is_shown(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.contains("tfevents") || name.split('/').any(|part| part == "plugins")
}

/// Adds what has come to a file since it had `from` bytes; how many it has now.
async fn copy(
    hdfs: &Hdfs,
    url: &str,
    to: &Path,
    from: u64,
    deadline: Instant,
) -> Result<u64, Report> {
    let reader = hdfs.open(url, deadline).await?;
    let cannot = |error: io::Error| {
        let why = reason(&error);
        Report::trouble(format!("cannot write `{}`: {why}", to.display()))
    };
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).map_err(cannot)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(from == 0);
    let mut file = options.open(to).map_err(cannot)?;
    let mut here = file.seek(SeekFrom::Start(from)).map_err(cannot)?;
    while here < reader.length() {
        let piece = reader.read_at(here, PIECE_BYTES, deadline).await?;
        if piece.is_empty() {
            break;
        }
        file.write_all(&piece).map_err(cannot)?;
        here += piece.len() as u64;
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_and_not_shown_stays_where_it_is() {
        for name in [
            "events.out.tfevents.1.host",
            "train/events.out.tfevents.1.host.v2",
            "plugins/profile/1/host.xplane.pb",
        ] {
            assert!(is_shown(name), "{name}");
        }
        for name in ["model.ckpt-1.data", "checkpoint", "tfevents/weights.bin"] {
            assert!(!is_shown(name), "{name}");
        }
    }
}
