//! Agents in container images on a cluster: detects an ignored image, and the address of the container's network.

use super::{network::source_address_to, yarn_container::is_of_this_node};
use std::{fs, net::ToSocketAddrs};
use ydl_os::env;

/// More generations than lie between a NodeManager and its processes.
const GENERATIONS_MAX: usize = 16;

/// Returns an error if this agent does not run in the requested image.
///
/// A node without container runtimes ignores the image and runs the container as plain processes below the NodeManager.
/// Inside an image, no ancestor is a NodeManager, which is Java.
pub(super) fn ignored_image() -> Option<String> {
    let runtime = std::env::var(env::RUNTIME_TYPE).ok()?;
    let mut pid = std::process::id();
    for _ in 0..GENERATIONS_MAX {
        let (name, parent) = process(pid)?;
        if name == "java" {
            return Some(format!(
                "the node ignored the task's image: it does not support the container runtime `{runtime}`"
            ));
        }
        pid = parent;
    }
    None
}

/// Returns the name of a process and its parent.
fn process(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

/// Returns the address for peers if the container has its own network: the address from which it reaches the master.
/// Returns none if it shares the network of its node.
pub(super) fn own_address(node: &str, master: &str) -> Option<String> {
    std::env::var_os(env::RUNTIME_TYPE)?;
    let network = std::env::var(env::DOCKER_NETWORK).ok();
    let shares = match network.as_deref() {
        Some(network) => network == "host",
        None => is_this_node(node),
    };
    match shares {
        true => None,
        false => source_address_to(master).map(|ip| ip.to_string()),
    }
}

/// Returns true if a node's name resolves to this network, or does not resolve.
fn is_this_node(node: &str) -> bool {
    let Ok(found) = (node, 0).to_socket_addrs() else {
        return true;
    };
    let mut found = found.map(|address| address.ip());
    found.any(is_of_this_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_parent_of_a_process_are_read() {
        let (name, parent) = process(std::process::id()).expect("this process");
        assert!(!name.is_empty());
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn a_node_is_local_if_its_name_resolves_to_an_own_address() {
        assert!(is_this_node("127.0.0.1"));
        assert!(!is_this_node("192.0.2.1"));
    }
}
