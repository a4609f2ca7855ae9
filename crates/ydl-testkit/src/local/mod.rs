//! Jobs on this machine.

mod examples;
mod home;

pub use examples::{
    assert_workers_agree, copy_example, example_arguments, kill_then_stop, printed_value,
    run_example, submit_and_kill, submit_and_signal, with_pauses,
};
pub use home::{Home, Process, kill, program_with_variable};

use std::time::Duration;

/// Timeout of every wait: more than anything takes on a busy machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
