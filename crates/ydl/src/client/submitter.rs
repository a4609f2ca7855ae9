//! Name of the user who submits a job.

use super::cluster::configuration;
use crate::cli::{Cluster, GlobalArgs};
use std::env;
use yarn_native::{
    config::{Config, Environment},
    security::{AuthMethod, Identity},
};
use ydl_compat::skein;
use ydl_jobfile::Node;
use ydl_os::report::Report;

/// Returns the user as whom a specification is submitted, if it names one and the user is known: the proxy user, the owner
/// of the Kerberos ticket, `HADOOP_USER_NAME` or the user of this process, as for every call to the cluster.
pub(crate) fn name(specification: &Node, global: GlobalArgs) -> Result<Option<String>, Report> {
    // A Kerberos library may block on its server.
    if !skein::names_user(specification) {
        return Ok(None);
    }
    let config = match global.cluster {
        Some(Cluster::Local) => None,
        Some(Cluster::Yarn) | None => configuration()?,
    };
    Ok(match config {
        Some(config) => on_cluster(&config),
        None => on_this_machine(),
    })
}

fn on_cluster(config: &Config) -> Option<String> {
    if let Some(user) = config.proxy_user() {
        return Some(user);
    }
    match Identity::from_config(config).ok()?.auth {
        AuthMethod::Kerberos(kerberos) => {
            kerberos.ticket().ok().map(|ticket| short_name(&ticket.principal).to_owned())
        }
        AuthMethod::Simple { user } => Some(user.clone()),
        _ => config.user().ok(),
    }
}

fn on_this_machine() -> Option<String> {
    let named = ["HADOOP_PROXY_USER", "HADOOP_USER_NAME"].into_iter();
    let mut named = named.filter_map(|name| env::var(name).ok().filter(|it| !it.is_empty()));
    named.next().or_else(|| Environment::of_process().property("user.name"))
}

/// Returns the first part of a principal: `alice` of `alice/host@EXAMPLE.COM`.
fn short_name(principal: &str) -> &str {
    principal.split(['/', '@']).next().unwrap_or(principal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_name_of_a_principal_is_its_first_part() {
        for principal in ["alice@EXAMPLE.COM", "alice/node.example.com@EXAMPLE.COM", "alice"] {
            assert_eq!(short_name(principal), "alice");
        }
    }
}
