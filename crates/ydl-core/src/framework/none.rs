//! Any command, without framework-specific configuration.

use super::{FrameworkProfile, ProcessConfig, ProcessContext, RoleDefaults};
use crate::spec::{Completion, ResizePolicy, RestartScope};

/// Any command.
pub(super) struct None;

impl FrameworkProfile for None {
    fn label(&self) -> &'static str {
        "programs"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["any", "command", "custom", "generic", "python", "shell"]
    }

    fn configure(&self, _given: &ProcessContext<'_>) -> ProcessConfig {
        ProcessConfig::default()
    }

    fn starts_together(&self) -> bool {
        false
    }

    /// Processes get their index in a variable.
    fn supports_processes(&self) -> bool {
        true
    }

    /// The use of its cores is unknown.
    fn thread_variables(&self) -> &'static [&'static str] {
        &[]
    }

    fn resize_policy(&self) -> Option<ResizePolicy> {
        Some(ResizePolicy::Restart)
    }

    fn role_defaults(&self, _role: &str, _roles: &[&str]) -> RoleDefaults {
        RoleDefaults { completion: Completion::All, scope: RestartScope::Task }
    }
}
