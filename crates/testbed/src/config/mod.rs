//! From what a cluster is to be to the keys of Hadoop's files: one configuration for clients, and one
//! for each daemon, which adds what is its own.

mod hdfs;
mod queues;
mod security;
mod yarn;

use crate::{options::Options, ports::Ports, site::Site};
use std::path::Path;

pub(crate) use hdfs::{default_fs, of_namenode};
pub(crate) use security::own_user;
pub(crate) use yarn::{doors, of_node, of_resource_manager};

/// What every key is made of.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub options: &'a Options,
    pub ports: &'a Ports,
    pub directory: &'a Path,
    pub mark: &'a str,
    /// Jars for the containers of Java masters, in comparisons.
    pub lib: &'a Path,
    /// What containers find in their environment, so that programs in them can use Kerberos.
    pub variables: Vec<(&'static str, String)>,
}

impl Plan<'_> {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// What clients need, and all daemons have in common.
pub(crate) fn common(plan: &Plan<'_>) -> Site {
    let mut site = Site::default();
    hdfs::common(plan, &mut site);
    yarn::common(plan, &mut site);
    queues::common(plan, &mut site);
    security::common(plan, &mut site);
    extra(plan, &mut site);
    site
}

/// Last of all, also in the daemons' own files.
pub(crate) fn extra(plan: &Plan<'_>, site: &mut Site) {
    for (file, key, value) in &plan.options.extra {
        site.set(*file, key, value);
    }
}
