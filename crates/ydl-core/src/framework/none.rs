//! Any command: nothing but what every task gets.

use super::RoleDefaults;
use crate::spec::{Completion, Scope};

pub(super) const ROLE_DEFAULTS: RoleDefaults = RoleDefaults {
    completion: Completion::All,
    scope: Scope::Task,
};
