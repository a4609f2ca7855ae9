//! Any command: nothing but what every task gets.

use super::{RoleDefaults, SetUp};
use crate::{
    cluster::Cluster,
    id::TaskId,
    spec::{Completion, Scope},
};

pub(super) const ROLE_DEFAULTS: RoleDefaults = RoleDefaults {
    completion: Completion::All,
    scope: Scope::Task,
};

pub(super) fn set_up(_cluster: &Cluster, _task: &TaskId) -> SetUp {
    SetUp::default()
}
