//! Any command: nothing but what every task gets.

use super::{Given, Needs, RoleDefaults, SetUp};
use crate::spec::{Completion, Reform, Scope};

/// Any command.
pub(super) struct None;

impl Needs for None {
    fn who(&self) -> &'static str {
        "programs"
    }

    fn also_called(&self) -> &'static [&'static str] {
        &["any", "command", "custom", "generic", "python", "shell"]
    }

    fn set_up(&self, _given: &Given<'_>) -> SetUp {
        SetUp::default()
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

    fn on_change(&self) -> Option<Reform> {
        Some(Reform::Restart)
    }

    fn role_defaults(&self, _role: &str, _roles: &[&str]) -> RoleDefaults {
        RoleDefaults { completion: Completion::All, scope: Scope::Task }
    }
}
