//! Any command: nothing but what every task gets.

use super::{Needs, ProcessConfig, ProcessContext, RoleDefaults};
use crate::spec::{Completion, ResizePolicy, RestartScope};

/// Any command.
pub(super) struct None;

impl Needs for None {
    fn who(&self) -> &'static str {
        "programs"
    }

    fn also_called(&self) -> &'static [&'static str] {
        &["any", "command", "custom", "generic", "python", "shell"]
    }

    fn set_up(&self, _given: &ProcessContext<'_>) -> ProcessConfig {
        ProcessConfig::default()
    }

    fn together(&self) -> bool {
        false
    }

    /// Its number is among its variables.
    fn has_processes(&self) -> bool {
        true
    }

    /// Nothing is known of what it does with its cores.
    fn threads(&self) -> &'static [&'static str] {
        &[]
    }

    fn on_change(&self) -> Option<ResizePolicy> {
        Some(ResizePolicy::Restart)
    }

    fn role_defaults(&self, _role: &str, _roles: &[&str]) -> RoleDefaults {
        RoleDefaults { completion: Completion::All, scope: RestartScope::Task }
    }
}
