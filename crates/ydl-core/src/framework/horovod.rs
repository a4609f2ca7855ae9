//! Horovod: equal processes that find each other at a store and then speak Gloo among themselves. The master has the
//! store, and each program reaches it on a port of its own agent.
//!
//! A task is a host of its own for Horovod, whatever node it is on: the local rank is then a process's number among
//! those that share the task's devices, and a container sees no others.
//!
//! When a process dies the others fail within a second, so all of them begin a new round together.

use super::{Given, SetUp};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// Horovod's own 30 s are short for processes that wait for one which loads its data first, or for a new master. Whoever
/// waits for a dead one is told by ydl.
const TIMEOUT_SECONDS: u32 = 300;

pub(super) fn set_up(given: &Given<'_>) -> SetUp {
    let Given {
        cluster,
        task,
        door,
        ..
    } = given;
    let (rank, world) = (cluster.rank(task).to_string(), cluster.world().to_string());
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        env.insert(format!("HOROVOD_{name}"), value);
    };
    set("RANK", rank.clone());
    set("SIZE", world.clone());
    set("LOCAL_RANK", "0".to_owned());
    set("LOCAL_SIZE", "1".to_owned());
    set("CROSS_RANK", rank);
    set("CROSS_SIZE", world);
    set("HOSTNAME", format!("{}-{}", task.role, task.index));
    set("CONTROLLER", "gloo".to_owned());
    set("CPU_OPERATIONS", "gloo".to_owned());
    set("GLOO_TIMEOUT_SECONDS", TIMEOUT_SECONDS.to_string());
    if let Some(port) = door {
        set("GLOO_RENDEZVOUS_ADDR", "127.0.0.1".to_owned());
        set("GLOO_RENDEZVOUS_PORT", port.to_string());
    }
    SetUp {
        env,
        arguments: Vec::new(),
    }
}
