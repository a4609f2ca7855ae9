//! Arguments of `ydl kv`.

use clap::{Args, Subcommand};

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
pub(crate) struct KvArgs {
    /// Select the job [default: inside a task, its job]
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// The operation.
    #[command(subcommand)]
    pub command: KvCommand,
}

/// Operations on the key-value store and events.
#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Print the value of a key
    Get {
        /// Key
        key: String,
        /// Wait up to TIME, such as `30s` or `5m`, for the key to appear
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
        /// Set the key only if its revision is N, as `ydl --json kv get` prints it
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
    /// Print the events that programs emitted
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
