//! Environment of the caller, and the cluster that it selects.

use std::{collections::BTreeMap, env, ffi::OsString};

/// Environment of the caller.
#[derive(Debug)]
pub struct CallerEnv {
    /// Variables of the user's shell.
    pub variables: BTreeMap<String, String>,
    /// Cluster type of a job that selects none.
    pub default_cluster: Cluster,
}

impl CallerEnv {
    /// Reads the environment of this process.
    pub fn current(default_cluster: Cluster) -> CallerEnv {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        CallerEnv { variables: env::vars_os().filter_map(text).collect(), default_cluster }
    }

    /// Returns a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value)
    }
}

/// Cluster type of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// The Hadoop cluster in `HADOOP_CONF_DIR`.
    Yarn,
    /// This machine.
    Local,
}
