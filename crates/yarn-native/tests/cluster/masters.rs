//! Masters on a cluster of three nodes.

mod managed;
mod unmanaged;

use testbed::Cluster;

use crate::support::master::options;

fn cluster() -> &'static Cluster {
    Cluster::shared(options()).unwrap_or_else(|failure| panic!("{failure}"))
}
