//! Command-line arguments: commands, flags and their help.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
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
Exit codes: docs/reference/exit-codes.md. Job file: docs/reference/job-file.md."
)]
pub struct Cli {
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
    pub fn use_color(self) -> Option<bool> {
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
pub enum CliCommand {
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
    },
    /// Run TensorBoard in a task
    #[command(hide = true)]
    Board(BoardArgs),
    /// Run the shim of a program
    #[command(hide = true)]
    Shim {
        /// The agent's socket [default: standard input]
        socket: Option<PathBuf>,
    },
}

/// Arguments of `ydl submit`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  ydl submit job.yaml
  ydl submit job.yaml --set roles.worker.instances=4 --set env.SEED=7
  ydl submit --show job.yaml                   print the job with all defaults
  ydl submit --dry-run job.yaml                check whether the cluster can run it
  ydl submit --detach job.yaml                 print the job's id and return
  ydl submit --instances 4 --memory 2GiB --file train.py -- python train.py
  ydl submit --framework mxnet --workers 2 --servers 2 --file train.py -- python train.py

Ctrl-C stops the job and waits for its end; a second Ctrl-C returns immediately.")]
pub struct SubmitArgs {
    /// Job file, or `-` for stdin
    #[arg(required_unless_present = "command")]
    pub file: Option<PathBuf>,
    /// Override a key of the job file
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
    /// Limit the job to `vcores=4,memory=8GiB,gpus=0` of this machine [default: the whole machine]
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
    /// Set an environment variable in every task
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Without a job file")]
    pub env: Vec<String>,
    /// Copy a file or directory to every task's working directory
    #[arg(long = "file", value_name = "PATH", help_heading = "Without a job file")]
    pub files: Vec<String>,
    /// Copy a path of a task's working directory to TO when it ends
    #[arg(long = "output", value_name = "FROM=TO", help_heading = "Without a job file")]
    pub outputs: Vec<String>,
    /// Program and arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "file")]
    pub command: Vec<String>,
}

/// Arguments of `ydl ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// List all jobs, not only the newest twenty
    #[arg(long, short)]
    pub all: bool,
}

/// Arguments of `ydl status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Job id, prefix of it, or name [default: the newest job]
    pub job: Option<String>,
    /// Show the latest N events
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub events: usize,
    /// Wait up to TIME for the job to finish
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
pub struct LogsArgs {
    /// Job, role (`worker`) or task (`worker:0`), or a job and one of these
    #[arg(value_name = "JOB|ROLE[:INDEX]", num_args = 0..=2)]
    pub which: Vec<String>,
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
pub struct FetchArgs {
    /// Job, optional pattern of names such as `outputs/model/a.params` or `logs/worker/0/1/stdout.0`, and directory
    #[arg(value_name = "JOB PATTERN DEST", num_args = 1..=3, required = true)]
    pub words: Vec<String>,
}

/// Arguments of `ydl kill`.
#[derive(Debug, Args)]
pub struct KillArgs {
    /// Job id, prefix of it, or name
    pub job: String,
    /// Skip the SIGTERM grace period
    #[arg(long)]
    pub now: bool,
}

/// Arguments of `ydl scale`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ydl scale mnist worker=4")]
pub struct ScaleArgs {
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
pub struct PortForwardArgs {
    /// Job id, prefix of it, or name [default: the newest job]
    pub job: Option<String>,
    /// Task [default: TensorBoard, or the only task with ports]
    pub task: Option<String>,
    /// Listen on this local port; 0 selects a free one
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    pub port: u16,
    /// Select a port by its name in `ports` [default: the first]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Arguments of `ydl board`.
#[derive(Debug, Args)]
pub struct BoardArgs {
    /// Read event files from this directory [default: the job's checkpoints]
    #[arg(long)]
    pub logdir: Option<String>,
    /// Mirror this HDFS directory continuously
    #[arg(long)]
    pub mirror: Option<String>,
}

/// Arguments of `ydl pack`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl pack ./venv                  show layers, sizes and what nodes must provide
  ydl pack -o packed ./venv        write the layers to a directory
  ydl pack requirements.txt        build an environment and pack it

Packed layers are cached: packing an unchanged environment again takes no time.")]
pub struct PackArgs {
    /// Environment, as in a job file [default: the active one, `.venv` or `venv`]
    pub source: Option<PathBuf>,
    /// Write the layers to DIR, for inspection
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Set the source of the interpreter: `auto`, `bundle` or `node`
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
pub struct CompatArgs {
    /// Install a command of each name in DIR: links to ydl, scripts for names in `.py`
    #[arg(long, value_name = "DIR")]
    pub install: Option<PathBuf>,
}

/// Arguments of `ydl nodes`.
#[derive(Debug, Args)]
pub struct NodesArgs {
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

Prints one line per check: ok, warning, wrong or skipped. The first problem is repeated at the end,
with a hint. Exit codes are those of `submit`.")]
pub struct DoctorArgs {
    /// Check this queue
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Check nodes with this label
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Set the staging directory, as `staging` in a job file
    #[arg(long, value_name = "DIR")]
    pub staging: Option<String>,
    /// Run no test job
    #[arg(long)]
    pub no_job: bool,
    /// Wait up to TIME for containers of the test job
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub wait: String,
}

/// Arguments of `ydl kv`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples, inside a task:
  ydl kv put address 10.0.0.7:4000
  ydl kv get --wait 1m address
Outside of a task: ydl kv --job mnist ls"
)]
pub struct KvArgs {
    /// Select the job [default: inside a task, its job]
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// The operation.
    #[command(subcommand)]
    pub command: KvCommand,
}

/// Operations on the key-value store and events.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Print the value of a key
    Get {
        /// Key
        key: String,
        /// Wait up to TIME for the key to appear
        #[arg(long, value_name = "TIME")]
        wait: Option<String>,
    },
    /// Set a key
    Put {
        /// Key
        key: String,
        /// Value [default: read from stdin]
        value: Option<String>,
        /// Set the key only if it does not exist
        #[arg(long)]
        if_absent: bool,
        /// Set the key only if its revision is N
        #[arg(long, value_name = "N", conflicts_with = "if_absent")]
        if_revision: Option<u64>,
        /// Delete the key when this task's container ends
        #[arg(long)]
        owned: bool,
    },
    /// List keys and values
    Ls {
        /// Prefix of keys
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Delete a key
    Rm {
        /// Key
        key: String,
        /// Delete all keys with this prefix
        #[arg(long)]
        prefix: bool,
    },
    /// Print changes of keys
    Watch {
        /// Prefix of keys
        #[arg(default_value = "")]
        prefix: String,
        /// Print changes after REVISION [default: existing keys, then changes]
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
        /// Exit after N changes
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Print events
    Events {
        /// Print events of this name only
        #[arg(long)]
        name: Option<String>,
        /// Print events after number N
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
        /// Follow events until the job ends
        #[arg(long, short)]
        follow: bool,
    },
    /// Emit an event
    Emit {
        /// Event name
        name: String,
        /// Data [default: read from stdin]
        data: Option<String>,
    },
}

const HEAD: &str = "\
# Commands

<!-- Generated from crates/ydl/src/cli.rs by `UPDATE_EXPECT=1 cargo test -p ydl --test cli arguments`. -->

Data goes to stdout, everything else to stderr. With `--json` a command prints one JSON object per line. Exit codes
are listed in [exit-codes.md](exit-codes.md).
";

/// Renders `docs/reference/commands.md`: the help of every command.
pub fn reference() -> String {
    let mut page = HEAD.to_string();
    let mut program = Cli::command().term_width(100);
    program.build();
    for command in program.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        // Flags of every command are listed once, at the end.
        let name = command.get_name().to_string();
        let help = command.clone().mut_args(|arg| {
            let shared = ["json", "color", "cluster"].contains(&arg.get_id().as_str());
            arg.hide(shared)
        });
        page += &section(&format!("ydl {name}"), help);
        for inner in command.get_subcommands().filter(|_| name == "kv") {
            let help = inner.clone().mut_args(|arg| {
                let shared = ["json", "color", "cluster", "job"].contains(&arg.get_id().as_str());
                arg.hide(shared)
            });
            page += &section(&format!("ydl kv {}", inner.get_name()), help);
        }
    }
    page += &section("ydl", program);
    page
}

fn section(title: &str, mut command: clap::Command) -> String {
    let help = command.render_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    format!("\n## `{title}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end())
}
