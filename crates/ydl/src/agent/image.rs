//! Agents in images on a cluster: whether a node has run the image that was asked for, and where its network leads.

use super::{network::towards, yarn_container::is_of_this_node};
use std::{fs, net::ToSocketAddrs};
use ydl_os::env;

/// More generations than there are between a NodeManager and what it starts.
const GENERATIONS_MAX: usize = 16;

/// Why this agent is not in the image that was asked for, if it is not.
///
/// A node that was not set up for images ignores that one was asked for and runs the container as plain processes, below
/// itself. In a container of an image a NodeManager, which is Java, is nobody's ancestor.
pub(super) fn ignored_image() -> Option<String> {
    let runtime = std::env::var(env::RUNTIME_TYPE).ok()?;
    let mut pid = std::process::id();
    for _ in 0..GENERATIONS_MAX {
        let (name, parent) = process(pid)?;
        if name == "java" {
            return Some(format!(
                "this node has ignored that the task runs in an image: it is not set up for `{runtime}`"
            ));
        }
        pid = parent;
    }
    None
}

/// A process' name and its parent.
fn process(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

/// Where peers reach an agent whose container has a network of its own: at the address from which it reaches its master.
/// Nothing where it has its node's.
pub(super) fn own_address(node: &str, master: &str) -> Option<String> {
    std::env::var_os(env::RUNTIME_TYPE)?;
    let said = std::env::var(env::DOCKER_NETWORK).ok();
    let shares = match said.as_deref() {
        Some(network) => network == "host",
        None => is_here(node),
    };
    match shares {
        true => None,
        false => towards(master).map(|ip| ip.to_string()),
    }
}

/// Whether a node's name leads to this network; so it is assumed where nobody knows the name.
fn is_here(node: &str) -> bool {
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
    fn every_process_has_a_name_and_a_parent() {
        let (name, parent) = process(std::process::id()).expect("this process");
        assert!(!name.is_empty());
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn a_node_is_here_if_its_name_leads_to_an_address_of_this_one() {
        assert!(is_here("127.0.0.1"));
        assert!(!is_here("192.0.2.1"));
    }
}
