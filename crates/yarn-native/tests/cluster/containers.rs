//! Features of containers and operations on running ones, on a real cluster.

mod access;
mod constraints;
mod files;
mod operations;

use std::path::Path;

use crate::support::master::{options, version};
use testbed::{Cluster, File, Options, Placement};
use yarn_native::types::{LocalResource, LocalResourceKind, Visibility};

/// Returns a cluster with access lists, opportunistic containers and the placement processor. The
/// first node is red and the others are blue, where the version supports attributes.
fn cluster() -> &'static Cluster {
    let colour = |(node, value): (usize, &str)| (node, "colour".to_owned(), value.to_owned());
    let attributes = match version().has_placement_constraints() {
        true => [(1, "red"), (2, "blue"), (3, "blue")].map(colour).to_vec(),
        false => Vec::new(),
    };
    let options = Options { attributes, placement: Placement::Processor, ..options() };
    let waiting = "yarn.resourcemanager.opportunistic-container-allocation.enabled";
    let queue = "yarn.nodemanager.opportunistic-containers-max-queue-length";
    let options = options
        .set(File::Yarn, "yarn.acl.enable", "true")
        .set(File::Yarn, "yarn.admin.acl", "nobody")
        .set(File::Queues, "yarn.scheduler.capacity.root.acl_administer_queue", "nobody")
        .set(File::Yarn, waiting, "true")
        .set(File::Yarn, queue, "4");
    Cluster::shared(options).unwrap_or_else(|failure| panic!("{failure}"))
}

fn local_resource(path: &Path, kind: LocalResourceKind, visibility: Visibility) -> LocalResource {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).expect("a file");
    let location = format!("file://{}", path.display());
    LocalResource {
        location: location.parse().expect("a path"),
        bytes: metadata.len(),
        modified: metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000,
        kind,
        visibility,
    }
}
