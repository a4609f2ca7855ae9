//! Route table: the replicas that gateways send requests to.

use crate::id::{ContainerId, TaskId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Replicas for the gateways. It is a state: a gateway needs only the newest one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    /// Number of changes of the table.
    pub version: u64,
    /// Replicas that have served, by task.
    pub replicas: Vec<Route>,
}

/// Replica in a [`RouteTable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The task.
    pub task: TaskId,
    /// Number of the attempt.
    pub attempt: u32,
    /// Container of the attempt.
    pub container: ContainerId,
    /// Revision that it runs.
    pub revision: u32,
    /// Share of new requests, relative to the other serving replicas of its role.
    pub weight: u32,
    /// Its use.
    pub state: RouteState,
}

/// Use of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteState {
    /// It gets new requests.
    Serving,
    /// It finishes its requests and gets no new ones.
    Draining,
}
