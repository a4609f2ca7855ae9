//! Arguments of commands on one job or on the list of jobs.

use clap::Args;

/// Arguments of `ydl ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// List all jobs, not only the newest twenty
    #[arg(long, short)]
    pub all: bool,
}

/// Arguments of `ydl status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Job id, prefix of it, or name [default: the newest job]
    pub job: Option<String>,
    /// Show the latest N events
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub events: usize,
    /// Wait up to TIME, such as `30s` or `2h`, for the job to finish
    #[arg(long, value_name = "TIME")]
    pub wait: Option<String>,
}

/// Arguments of `ydl logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl logs                      print the output of all tasks of the newest job
  ydl logs -f worker:0          follow one of its tasks
  ydl logs mnist worker         print the output of a role of the job `mnist`
  ydl logs mnist --stderr --tail 20")]
pub(crate) struct LogsArgs {
    /// Job, role (`worker`) or task (`worker:0`), or a job and one of these
    #[arg(value_name = "JOB|ROLE[:INDEX]", num_args = 0..=2)]
    pub operands: Vec<String>,
    /// Follow the output until the job ends
    #[arg(long, short)]
    pub follow: bool,
    /// Print this attempt [default: the last one of each task]
    #[arg(long, value_name = "N", conflicts_with = "all_attempts")]
    pub attempt: Option<u32>,
    /// Print every attempt of each task
    #[arg(long)]
    pub all_attempts: bool,
    /// Print stdout only
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Print stderr only
    #[arg(long)]
    pub stderr: bool,
    /// Print the last N lines of each stream
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

/// Arguments of `ydl fetch`.
#[derive(Debug, Args)]
#[command(
    override_usage = "ydl fetch [OPTIONS] JOB [PATTERN] DEST",
    after_help = "\
Examples:
  ydl fetch mnist results                      download outputs and logs of a job
  ydl fetch mnist 'outputs/*.params' results   download matching files only
  ydl fetch mnist 'logs/worker/*' results      download the output of its workers

An interrupted download is resumed. Files of an earlier fetch of the same job are updated. Other
files in DEST are never overwritten: the command lists them and downloads nothing."
)]
pub(crate) struct FetchArgs {
    /// Job, optional pattern of names such as `outputs/model/a.params` or `logs/worker/0/1/stdout.0`, and directory
    #[arg(value_name = "JOB PATTERN DEST", num_args = 1..=3, required = true)]
    pub operands: Vec<String>,
}

/// Arguments of `ydl kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Job id, prefix of it, or name
    pub job: String,
    /// Skip the SIGTERM grace period
    #[arg(long)]
    pub now: bool,
}

/// Arguments of `ydl scale`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ydl scale mnist worker=4")]
pub(crate) struct ScaleArgs {
    /// Job id, prefix of it, or name
    pub job: String,
    /// Role and its new number of tasks
    #[arg(value_name = "ROLE=N")]
    pub size: String,
}

/// Arguments of `ydl port-forward`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl port-forward mnist                     forward to TensorBoard, or to the only task with a port
  ydl port-forward mnist notebook:0 -p 8888  forward local port 8888 to a task
  ydl port-forward mnist worker:1 --name debug

Listens on the loopback interface for connections of this user only, and forwards them through the
job's master and the task's agent. Ends with the job, or on Ctrl-C.")]
pub(crate) struct PortForwardArgs {
    /// Job id, prefix of it, or name [default: the newest job]
    pub job: Option<String>,
    /// Task, such as `worker:0` [default: TensorBoard, or the only task with ports]
    pub task: Option<String>,
    /// Listen on this local port; 0 selects a free one
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    pub port: u16,
    /// Select a port by its name in `ports` [default: the first]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}
