//! Command-line arguments: commands, flags and their help.
//!
//! * `submit`, `job`, `kv`: arguments of commands on jobs. * `gateway`: of the gateway. * `cluster`: of the others.
//! * `reference`: the reference page.

mod cluster;
mod gateway;
mod job;
mod kv;
mod reference;
mod submit;

pub(crate) use cluster::{BoardArgs, CompatArgs, DoctorArgs, NodesArgs, PackArgs};
pub(crate) use gateway::GatewayArgs;
pub(crate) use job::{
    FetchArgs, KillArgs, LogsArgs, LsArgs, PortForwardArgs, ScaleArgs, StatusArgs,
};
pub(crate) use kv::{KvArgs, KvCommand};
pub use reference::reference;
pub(crate) use submit::SubmitArgs;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// Distributed deep learning on one machine or many.
#[derive(Debug, Parser)]
#[command(
    name = "ydl",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  ydl submit job.yaml                          run a job and follow it
  ydl submit --instances 4 -- python train.py  run a command without a job file
  ydl ls                                       list jobs
  ydl logs -f worker:0                         follow the output of a task
  ydl kill mnist                               stop the job `mnist`

JOB is an id, a prefix of an id, or a name: the newest job of that name. `kill` and `scale`
select the running job of that name and fail if several run.
Exit codes of `submit`: 0 success, 2 invalid input, 120 failed without a program's exit code,
121 killed, 122 unreachable, 123 error of ydl, 130 interrupted, else the failed program's code.
More: docs/reference/exit-codes.md. Job file: docs/reference/job-file.md."
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: CliCommand,
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// Flags of every command.
#[derive(Clone, Copy, Debug, Args)]
pub struct GlobalArgs {
    /// Print JSON on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// Use colors
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
    /// Select where jobs run [default: yarn if a Hadoop configuration is found, otherwise local]
    #[arg(long, global = true, value_enum, value_name = "CLUSTER")]
    pub cluster: Option<Cluster>,
}

/// Policy for colored output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On terminals, unless `NO_COLOR` is set.
    Auto,
    /// Also in files and pipes.
    Always,
    /// Never.
    Never,
}

impl GlobalArgs {
    /// Returns the explicit choice; `None` for `auto`.
    pub(crate) fn use_color(self) -> Option<bool> {
        match self.color {
            ColorChoice::Auto => None,
            ColorChoice::Always => Some(true),
            ColorChoice::Never => Some(false),
        }
    }
}

/// Place where jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cluster {
    /// The Hadoop cluster of `HADOOP_CONF_DIR`.
    Yarn,
    /// This machine.
    Local,
}

impl From<ydl_compat::Cluster> for Cluster {
    fn from(cluster: ydl_compat::Cluster) -> Cluster {
        match cluster {
            ydl_compat::Cluster::Yarn => Cluster::Yarn,
            ydl_compat::Cluster::Local => Cluster::Local,
        }
    }
}

/// Commands, in the order of the help.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a job and follow it to its end
    Submit(Box<SubmitArgs>),
    /// List jobs
    Ls(LsArgs),
    /// Show the state of a job and its tasks
    Status(StatusArgs),
    /// Print the output of tasks
    Logs(LogsArgs),
    /// Download outputs and logs of a job
    Fetch(FetchArgs),
    /// Stop a job
    Kill(KillArgs),
    /// Change the number of tasks of a role
    Scale(ScaleArgs),
    /// Forward a local port to a port of a task, such as TensorBoard's
    PortForward(PortForwardArgs),
    /// Forward HTTP requests to the replicas of a model server
    Gateway(GatewayArgs),
    /// Pack a Python environment as `submit` does
    Pack(PackArgs),
    /// Read and write a job's key-value store and events
    Kv(KvArgs),
    /// List the nodes of the cluster and their free resources
    Nodes(NodesArgs),
    /// List the queues of the cluster and their capacities
    Queues,
    /// Check the cluster, or this machine, for running jobs
    Doctor(DoctorArgs),
    /// List the supported command lines of older systems, or install commands of their names
    Compat(CompatArgs),
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  ydl completions bash > ~/.local/share/bash-completion/completions/ydl")]
    Completions {
        /// Shell to complete for
        shell: Shell,
    },
    /// Run the master of a job
    #[command(hide = true)]
    Master {
        /// The job's directory; omitted in a container of a cluster
        dir: Option<PathBuf>,
    },
    /// Run the agent of a container
    #[command(hide = true)]
    Agent {
        /// The container's directory; omitted in a container of a cluster
        dir: Option<PathBuf>,
        /// The container's log directory, where its node looks for output
        #[arg(long, value_name = "DIRECTORY")]
        container_logs: Option<PathBuf>,
    },
    /// Run TensorBoard in a task
    #[command(hide = true)]
    Board(BoardArgs),
    /// Write address, certificate and token of a job's master into a directory
    #[command(hide = true)]
    MasterAccess {
        /// Job id, prefix of it, or name
        job: String,
        /// A directory of this user alone
        dir: PathBuf,
    },
    /// Write the Python package, also under skein's name, into a directory
    #[command(hide = true)]
    PythonPackage {
        /// The directory, which is left as it is if it exists
        dir: PathBuf,
    },
    /// Run the shim of a program
    #[command(hide = true)]
    Shim {
        /// The agent's socket [default: standard input]
        socket: Option<PathBuf>,
    },
}
