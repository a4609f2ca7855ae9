//! The words of the command line, and nothing but the words.

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
  ydl submit --instances 4 -- python train.py  the same without a job file
  ydl ls                                       the jobs there are
  ydl logs -f worker:0                         what one task prints, as it comes
  ydl kill mnist                               stop the job of that name

A JOB is an id, the beginning of one, or a name: the newest job of that name. `kill` and `scale`
take the one that runs, and none where several do.
Exit codes are in docs/reference/exit-codes.md, the job file in docs/reference/job-file.md."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every verb takes.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// What every verb takes.
#[derive(Clone, Copy, Debug, Args)]
pub struct GlobalArgs {
    /// Print JSON on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
    /// Where jobs run; on a cluster if a Hadoop configuration is found, else on this machine
    #[arg(long, global = true, value_enum, value_name = "CLUSTER")]
    pub cluster: Option<Cluster>,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Also into files and pipes.
    Always,
    /// Not at all.
    Never,
}

impl GlobalArgs {
    /// Whether colours are wanted, if that was said.
    pub fn use_color(self) -> Option<bool> {
        match self.color {
            ColorChoice::Auto => None,
            ColorChoice::Always => Some(true),
            ColorChoice::Never => Some(false),
        }
    }
}

/// Where jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cluster {
    /// The Hadoop cluster that `HADOOP_CONF_DIR` leads to.
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

/// What to do, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job, and follow it until it is over
    Submit(Box<SubmitArgs>),
    /// List jobs
    Ls(LsArgs),
    /// Show how a job stands, and why
    Status(StatusArgs),
    /// Print what tasks have printed
    Logs(LogsArgs),
    /// Download what a job has left behind: its outputs and logs
    Fetch(FetchArgs),
    /// Stop a job
    Kill(KillArgs),
    /// Change how many tasks a role has
    Scale(ScaleArgs),
    /// Reach a port of a task, such as TensorBoard's, from this machine
    PortForward(PortForwardArgs),
    /// Pack a Python environment, as `submit` does by itself
    Pack(PackArgs),
    /// Use a job's key-value store and events
    Kv(KvArgs),
    /// Show the nodes of the cluster, and what is free on each
    Nodes(NodesArgs),
    /// Show the queues of the cluster, and what they may use
    Queues,
    /// Check everything that a job needs, and say what to do
    Doctor(DoctorArgs),
    /// List the command lines of older systems that ydl understands, or make commands of their names
    Compat(CompatArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Be the master of a job
    #[command(hide = true)]
    Master {
        /// The job's directory; in a container of a cluster it is not said
        dir: Option<PathBuf>,
    },
    /// Be the agent of a container
    #[command(hide = true)]
    Agent {
        /// The container's directory; in a container of a cluster it is not said
        dir: Option<PathBuf>,
    },
    /// Be TensorBoard in a task
    #[command(hide = true)]
    Board(BoardArgs),
    /// Be the shim of a program
    #[command(hide = true)]
    Shim {
        /// The agent's socket; standard input where it is not said
        socket: Option<PathBuf>,
    },
}

/// `ydl submit`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  ydl submit job.yaml
  ydl submit job.yaml --set roles.worker.instances=4 --set env.SEED=7
  ydl submit --show job.yaml                   the job as understood, defaults filled in
  ydl submit --dry-run job.yaml                whether the cluster could run it
  ydl submit --detach job.yaml                 print the job's id and leave it running
  ydl submit --instances 4 --memory 2GiB --file train.py -- python train.py
  ydl submit --framework mxnet --workers 2 --servers 2 --file train.py -- python train.py

Ctrl-C asks the job to stop and waits for it; a second Ctrl-C leaves at once.")]
pub struct SubmitArgs {
    /// The job file; `-` reads it from stdin
    #[arg(required_unless_present = "command")]
    pub file: Option<PathBuf>,
    /// Put a value on top of the job file
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the job as understood, and run nothing
    #[arg(long)]
    pub show: bool,
    /// Check whether the job could run, and leave no trace
    #[arg(long)]
    pub dry_run: bool,
    /// Print the job's id and leave it running
    #[arg(long, short)]
    pub detach: bool,
    /// ColorChoice the job is over, download its outputs and logs there, as `ydl fetch` does
    #[arg(long, value_name = "DIR", conflicts_with_all = ["detach", "show", "dry_run"])]
    pub fetch: Option<PathBuf>,
    /// How much of this machine the job may use, as in `vcores=4,memory=8GiB,gpus=0`; all of it if left out
    #[arg(long, value_name = "WHAT")]
    pub resources: Option<String>,
    /// The job's name
    #[arg(long, help_heading = "Without a job file")]
    pub name: Option<String>,
    /// Whose rendezvous the job needs, as `framework` of a job file: `pytorch`, `mxnet`, …
    #[arg(long, help_heading = "Without a job file")]
    pub framework: Option<String>,
    /// What `environment` of a job file takes: `./venv`, `requirements.txt`, `docker://python:3.11`
    #[arg(long, value_name = "WHAT", help_heading = "Without a job file")]
    pub environment: Option<String>,
    /// How many tasks
    #[arg(long, visible_alias = "workers", value_name = "N", help_heading = "Without a job file")]
    pub instances: Option<String>,
    /// How many parameter servers
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub servers: Option<String>,
    /// Memory of each task, such as `2GiB`
    #[arg(long, value_name = "SIZE", help_heading = "Without a job file")]
    pub memory: Option<String>,
    /// Virtual cores of each task
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub vcores: Option<String>,
    /// GPUs of each task
    #[arg(long, value_name = "N", help_heading = "Without a job file")]
    pub gpus: Option<String>,
    /// A variable for every task
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Without a job file")]
    pub env: Vec<String>,
    /// A file or directory that every task finds where it runs
    #[arg(long = "file", value_name = "PATH", help_heading = "Without a job file")]
    pub files: Vec<String>,
    /// What to copy out of a task's directory when it is over
    #[arg(long = "output", value_name = "FROM=TO", help_heading = "Without a job file")]
    pub outputs: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "file")]
    pub command: Vec<String>,
}

/// `ydl ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Also those beyond the newest twenty
    #[arg(long, short)]
    pub all: bool,
}

/// `ydl status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The job: its id, the beginning of it, or its name; the newest one if left out
    pub job: Option<String>,
    /// Number of latest events to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub events: usize,
    /// Wait until the job is over, so long at most, and show it then
    #[arg(long, value_name = "TIME")]
    pub wait: Option<String>,
}

/// `ydl logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl logs                      all tasks of the newest job
  ydl logs -f worker:0          one task of it, until the job is over
  ydl logs mnist worker         a role of another job
  ydl logs mnist --stderr --tail 20")]
pub struct LogsArgs {
    /// A job, a role (`worker`) or a task (`worker:0`), or a job and one of these
    #[arg(value_name = "JOB|ROLE[:INDEX]", num_args = 0..=2)]
    pub which: Vec<String>,
    /// Go on printing until the job is over
    #[arg(long, short)]
    pub follow: bool,
    /// Only this attempt; the last one of each task if left out
    #[arg(long, value_name = "N", conflicts_with = "all_attempts")]
    pub attempt: Option<u32>,
    /// Every attempt of each task
    #[arg(long)]
    pub all_attempts: bool,
    /// Only what went to stdout
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only what went to stderr
    #[arg(long)]
    pub stderr: bool,
    /// Only the last lines of each stream
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

/// `ydl fetch`.
#[derive(Debug, Args)]
#[command(
    override_usage = "ydl fetch [OPTIONS] JOB [PATTERN] DEST",
    after_help = "\
Examples:
  ydl fetch mnist results                      outputs and logs of a job, running or over
  ydl fetch mnist 'outputs/*.params' results   only what fits
  ydl fetch mnist 'logs/worker/*' results      what its workers have printed

An interrupted download goes on where it ended. What an earlier fetch of the job has brought is brought up to date;
what anybody else has put there is not replaced: the command names it and brings nothing."
)]
pub struct FetchArgs {
    /// The job, perhaps a pattern for names such as `outputs/model/a.params` and `logs/worker/0/1/stdout.0`, and the
    /// directory to write to
    #[arg(value_name = "JOB PATTERN DEST", num_args = 2..=3, required = true)]
    pub words: Vec<String>,
}

/// `ydl kill`.
#[derive(Debug, Args)]
pub struct KillArgs {
    /// The job: its id, the beginning of it, or its name
    pub job: String,
    /// Without the grace that programs have after SIGTERM
    #[arg(long)]
    pub now: bool,
}

/// `ydl scale`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ydl scale mnist worker=4")]
pub struct ScaleArgs {
    /// The job: its id, the beginning of it, or its name
    pub job: String,
    /// The role and its new number of tasks
    #[arg(value_name = "ROLE=N")]
    pub size: String,
}

/// `ydl port-forward`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl port-forward mnist                     TensorBoard of a job, or its only task with a port
  ydl port-forward mnist notebook:0 -p 8888  a task's port on a port of this machine
  ydl port-forward mnist worker:1 --name debug

It listens on the loopback interface alone, takes connections of this user alone, and passes them on through the
job's master and the task's agent: nothing else is open to anybody. It goes on until the job is over, or Ctrl-C.")]
pub struct PortForwardArgs {
    /// The job: its id, the beginning of it, or its name; the newest one if left out
    pub job: Option<String>,
    /// The task; the only one that has ports if left out, or TensorBoard
    pub task: Option<String>,
    /// The port of this machine; a free one if left out
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    pub port: u16,
    /// The name of the task's port in `ports`; the first if left out
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `ydl board`.
#[derive(Debug, Args)]
pub struct BoardArgs {
    /// What it looks at; the job's checkpoints if left out
    #[arg(long)]
    pub logdir: Option<String>,
    /// Bring this from HDFS to there, and go on doing so
    #[arg(long)]
    pub mirror: Option<String>,
}

/// `ydl pack`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl pack ./venv                  what would be sent, how large it is, and what it asks of a node
  ydl pack -o packed ./venv        the layers as files, to look into
  ydl pack requirements.txt        of an environment that is made from it

What was packed is kept: packing again what has not changed takes no time.")]
pub struct PackArgs {
    /// An environment, as in the job file; the active one, `.venv` or `venv` if left out
    pub source: Option<PathBuf>,
    /// Put the layers into this directory, to look into; `submit` packs by itself and takes none
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Where the interpreter comes from: `auto`, `bundle` or `node`
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub interpreter: String,
}

/// `ydl compat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl compat                             what there is
  ydl dmlc-submit --help                one of them
  ydl compat --install ~/.local/bin      so that `dmlc-submit` alone is enough

What each of them understands, and what became of it, is in docs/moving/README.md.")]
pub struct CompatArgs {
    /// Make a command of each name in this directory: a link to this program, or a script where it ends in `.py`
    #[arg(long, value_name = "DIR")]
    pub install: Option<PathBuf>,
}

/// `ydl nodes`.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// Also those that are lost or out of service
    #[arg(long, short)]
    pub all: bool,
}

/// `ydl doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl doctor                        the cluster of `HADOOP_CONF_DIR`, with a job that does nothing
  ydl doctor --queue research       whether that queue takes this user's jobs
  ydl doctor --no-job               without the job
  ydl doctor --cluster local        this machine

One line a check: ok, warning, wrong, or skipped because of another. The first thing that is wrong is named again at
the end, with what to do. Exit codes are those that `submit` would have ended with.")]
pub struct DoctorArgs {
    /// The queue that jobs will go to
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// The label of the nodes that jobs will ask for
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Where jobs will be kept, as `staging` of a job file
    #[arg(long, value_name = "DIR")]
    pub staging: Option<String>,
    /// Leave out the job that is run to try everything
    #[arg(long)]
    pub no_job: bool,
    /// How long that job may wait for containers
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub wait: String,
}

/// `ydl kv`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples, inside a task:
  ydl kv put address 10.0.0.7:4000
  ydl kv get --wait 1m address
Elsewhere, name the job: ydl kv --job mnist ls"
)]
pub struct KvArgs {
    /// The job; inside a task its own, elsewhere it must be named
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// What to do with it.
    #[command(subcommand)]
    pub command: KvCommand,
}

/// What to do with a key-value store.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Print the value of a key
    Get {
        /// The key
        key: String,
        /// Wait so long for the key to come
        #[arg(long, value_name = "TIME")]
        wait: Option<String>,
    },
    /// Set a key
    Put {
        /// The key
        key: String,
        /// Its value; read from stdin if left out
        value: Option<String>,
        /// Only if there is no such key
        #[arg(long)]
        if_absent: bool,
        /// Only if its revision is still this
        #[arg(long, value_name = "N", conflicts_with = "if_absent")]
        if_revision: Option<u64>,
        /// The key goes away with this task's container
        #[arg(long)]
        owned: bool,
    },
    /// List keys and values
    Ls {
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Delete a key
    Rm {
        /// The key
        key: String,
        /// All keys that begin with it
        #[arg(long)]
        prefix: bool,
    },
    /// Print changes as they come
    Watch {
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
        /// Changes after this revision; without it, what is there comes first
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
        /// End after so many changes
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Print events
    Events {
        /// Only events of this name
        #[arg(long)]
        name: Option<String>,
        /// Only events after this number
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
        /// Go on until the job is over
        #[arg(long, short)]
        follow: bool,
    },
    /// Emit an event
    Emit {
        /// Its name
        name: String,
        /// Its data; read from stdin if left out
        data: Option<String>,
    },
}

const HEAD: &str = "\
# Commands

<!-- Made from crates/ydl/src/cli.rs; `UPDATE_EXPECT=1 cargo test -p ydl --test cli` writes it anew. -->

Data goes to stdout, everything else to stderr. With `--json` a command prints one JSON object per line. Exit codes
are in [exit-codes.md](exit-codes.md).
";

/// The text of `docs/reference/commands.md`: the help of every verb.
pub fn reference() -> String {
    let mut page = HEAD.to_string();
    let mut program = Cli::command().term_width(100);
    program.build();
    for verb in program.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
        // The doors that every verb shares are told once, at the end.
        let name = verb.get_name().to_string();
        let help = verb.clone().mut_args(|arg| {
            let shared = ["json", "color", "cluster"].contains(&arg.get_id().as_str());
            arg.hide(shared)
        });
        page += &section(&format!("ydl {name}"), help);
        for inner in verb.get_subcommands().filter(|_| name == "kv") {
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
