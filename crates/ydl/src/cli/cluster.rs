//! Arguments of commands on a cluster, on this machine and on environments, and of `ydl board`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `ydl pack`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl pack ./venv                  show layers, sizes and what nodes must provide
  ydl pack -o packed ./venv        write the layers to a directory
  ydl pack requirements.txt        build an environment and pack it

Packed layers are cached: packing an unchanged environment again takes no time.")]
pub(crate) struct PackArgs {
    /// Environment, as in a job file [default: the active one, `.venv` or `venv`]
    pub source: Option<PathBuf>,
    /// Write the layers to DIR, for inspection
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Pack the interpreter (`bundle`), expect it on the nodes (`node`), or decide by its path (`auto`)
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub interpreter: String,
}

/// Arguments of `ydl compat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl compat                            list supported command lines
  ydl dmlc-submit --help                show the help of one
  ydl compat --install ~/.local/bin     install `dmlc-submit` and the others as commands

Supported features of each: docs/moving/README.md.")]
pub(crate) struct CompatArgs {
    /// Install a command of each name in DIR: links to ydl, scripts for names in `.py`
    #[arg(long, value_name = "DIR")]
    pub install: Option<PathBuf>,
}

/// Arguments of `ydl nodes`.
#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// List lost and decommissioned nodes too
    #[arg(long, short)]
    pub all: bool,
}

/// Arguments of `ydl doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl doctor                        check the cluster of `HADOOP_CONF_DIR`, and run a test job
  ydl doctor --queue research       check that the queue accepts jobs of this user
  ydl doctor --no-job               run no test job
  ydl doctor --cluster local        check this machine

Prints one line per check: ok, warning, failed or skipped. The first problem is repeated at the end,
with a hint. Exit codes are those of `submit`.")]
pub(crate) struct DoctorArgs {
    /// Check that this user may submit to QUEUE [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Check that the queue may use nodes with LABEL
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Set the staging directory, as `staging` in a job file
    #[arg(long, value_name = "DIR")]
    pub staging: Option<String>,
    /// Run no test job
    #[arg(long)]
    pub no_job: bool,
    /// Wait up to TIME, such as `30s` or `5m`, for containers of the test job
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub wait: String,
}

/// Arguments of `ydl board`.
#[derive(Debug, Args)]
pub(crate) struct BoardArgs {
    /// Read event files from this directory [default: the job's checkpoints]
    #[arg(long)]
    pub logdir: Option<String>,
    /// Mirror this HDFS directory continuously
    #[arg(long)]
    pub mirror: Option<String>,
}
