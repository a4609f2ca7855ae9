//! Arguments of `ydl submit`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `ydl submit`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  ydl submit job.yaml
  ydl submit job.yaml --set roles.worker.instances=4 --set env.SEED=7
  ydl submit job.yaml --set queue=research
  ydl submit --show job.yaml                   print the job with all defaults
  ydl submit --dry-run job.yaml                check whether the cluster can run it
  ydl submit --detach job.yaml                 print the job's id and return
  ydl submit --instances 4 --memory 2GiB --files train.py -- python train.py
  ydl submit --framework mxnet --workers 2 --servers 2 --files train.py -- python train.py

Ctrl-C stops the job and waits for its end; a second Ctrl-C returns immediately.")]
pub(crate) struct SubmitArgs {
    /// Job file, or `-` for stdin
    #[arg(required_unless_present = "command")]
    pub file: Option<PathBuf>,
    /// Override a key, such as `roles.worker.instances=4`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the job with all defaults; run nothing
    #[arg(long)]
    pub show: bool,
    /// Check whether the job can run; submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the job's id and return without following it
    #[arg(long, short)]
    pub detach: bool,
    /// Download outputs and logs to DIR when the job has ended
    #[arg(long, value_name = "DIR", conflicts_with_all = ["detach", "show", "dry_run"])]
    pub fetch: Option<PathBuf>,
    /// Set what the job may use of this machine, such as `vcores=4,memory=8GiB,gpus=0` [default: all]
    #[arg(long, value_name = "LIMITS")]
    pub resources: Option<String>,
    /// Set the job's name
    #[arg(long, help_heading = "Without a job file")]
    pub name: Option<String>,
    /// Set the framework, as `framework` in a job file: `pytorch`, `mxnet`, …
    #[arg(long, help_heading = "Without a job file")]
    pub framework: Option<String>,
    /// Set the environment, as in a job file: `./venv`, `requirements.txt`, `docker://python:3.11`
    #[arg(long, value_name = "ENV", help_heading = "Without a job file")]
    pub environment: Option<String>,
    /// Set the number of tasks [default: 1]
    #[arg(long, visible_alias = "workers", value_name = "N", help_heading = "Without a job file")]
    pub instances: Option<String>,
    /// Set the number of parameter servers
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub servers: Option<String>,
    /// Set the memory of each task, such as `2GiB` [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Without a job file")]
    pub memory: Option<String>,
    /// Set the virtual cores of each task [default: 1]
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub vcores: Option<String>,
    /// Set the GPUs of each task [default: 0]
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub gpus: Option<String>,
    /// Set an environment variable in every task; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Without a job file")]
    pub env: Vec<String>,
    /// Copy a file or directory to every task's working directory; repeatable
    #[arg(
        long = "files",
        visible_alias = "file",
        value_name = "PATH",
        help_heading = "Without a job file"
    )]
    pub files: Vec<String>,
    /// Copy FROM in the working directory to TO at a task's end; repeatable
    #[arg(long = "output", value_name = "FROM=TO", help_heading = "Without a job file")]
    pub outputs: Vec<String>,
    /// Program and arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "file")]
    pub command: Vec<String>,
}
