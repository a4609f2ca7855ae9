//! Clusters that the tests of a process share.

use crate::{
    cluster::Cluster,
    error::Error,
    options::Options,
    pool::{Pool, PoolLease},
};
use std::{ops::Deref, sync::LazyLock, thread};

/// Clusters that run at a time in one process. Each takes one to two gigabytes of memory, and a start
/// takes seconds.
const CLUSTERS_MAX: usize = 2;

/// Leases at a time per core. A test waits for its cluster more than it computes, but a job is several
/// processes.
const LEASES_PER_CORE: usize = 2;

static CLUSTERS: LazyLock<Pool<Options, Cluster, Error>> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    Pool::new(CLUSTERS_MAX, LEASES_PER_CORE * cores)
});

/// Use of a shared cluster until it is dropped. The cluster then remains for other leases with the same
/// options, until another cluster needs its place or the process exits.
#[derive(Debug)]
pub struct Lease(PoolLease<Options, Cluster, Error>);

impl Cluster {
    /// Leases the cluster of this process with these options, for a test that disturbs no other. The
    /// first caller starts it; an error is returned to all. At most two clusters run at a time: a call
    /// for a third one waits until one of them is free, and stops that. A test holds at most one lease.
    /// Waiting costs only a thread, so the tests of a program may have many threads.
    pub fn lease(options: Options) -> Result<Lease, Error> {
        CLUSTERS.lease(options, false, Cluster::start).map(Lease)
    }

    /// Like [`Cluster::lease`], without other leases of the same cluster meanwhile. The test restores what it
    /// takes away.
    pub fn lease_exclusive(options: Options) -> Result<Lease, Error> {
        CLUSTERS.lease(options, true, Cluster::start).map(Lease)
    }
}

impl Deref for Lease {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}
