//! Maps options to Hadoop configuration keys: one configuration for clients, and one per daemon that
//! adds its own keys.

mod hdfs;
mod queues;
mod security;
mod yarn;

use crate::{options::Options, ports::PortBlock, site::Site};
use std::path::Path;

pub(crate) use hdfs::{configure_namenode, default_fs, nameservice};
pub(crate) use security::own_user;
pub(crate) use yarn::{configure_node, configure_resource_manager, resource_manager_ports};

/// Inputs of the configuration.
#[derive(Debug)]
pub(crate) struct ConfigContext<'a> {
    pub options: &'a Options,
    pub ports: &'a PortBlock,
    pub directory: &'a Path,
    pub cluster_id: &'a str,
    /// Directory of the jars, for containers of Java application masters in benchmarks.
    pub lib: &'a Path,
    /// Environment variables of containers, so that their programs can use Kerberos.
    pub variables: Vec<(&'static str, String)>,
}

impl ConfigContext<'_> {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// Returns the keys common to clients and daemons.
pub(crate) fn common(context: &ConfigContext<'_>) -> Site {
    let mut site = Site::default();
    hdfs::common(context, &mut site);
    yarn::common(context, &mut site);
    queues::common(context, &mut site);
    security::common(context, &mut site);
    extra(context, &mut site);
    site
}

/// Sets the additional keys. Called last, also for the daemons' own files.
pub(crate) fn extra(context: &ConfigContext<'_>, site: &mut Site) {
    for (file, key, value) in &context.options.extra {
        site.set(*file, key, value);
    }
}
