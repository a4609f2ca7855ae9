//! Checks images, as far as a client can: a cluster does not report the runtimes that its nodes allow.

use super::{
    check::Findings,
    cluster::{ClusterInfo, Constraints},
};
use std::collections::BTreeSet;
use ydl_core::{JobSpec, spec::Runtime};

const ALLOWED: &str = "yarn.nodemanager.runtime.linux.allowed-runtimes";

pub(super) fn check(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    let mut runtimes = BTreeSet::new();
    for (role, image) in spec.images() {
        let key = match role.environment.is_some() {
            true => format!("roles.{}.environment", role.name),
            false => "environment".to_owned(),
        };
        let subject = format!("role `{}`", role.name);
        // Node attributes came with Hadoop 3.2, resource types with 3.1.
        if image.runtime == Runtime::Runc && cluster.constraints == Constraints::TooOld {
            findings.refuse(
                format!("{subject} uses an image with runc, which needs Hadoop 3.3 or newer"),
                format!("use `{key}: {{docker: …}}`"),
            );
        } else if !image.mounts.is_empty() && cluster.kinds.is_none() {
            findings.refuse(
                format!("{subject} asks for mounts in its image, which need Hadoop 3.1 or newer"),
                format!("leave `{key}.mounts` out"),
            );
        } else {
            runtimes.insert(image.runtime.to_string());
        }
        let network = image.network.as_deref().filter(|network| *network != "host");
        if let Some(network) = network.filter(|_| spec.task_count() > 1) {
            findings.note(format!(
                "{subject} uses the network `{network}`: tasks on different nodes can connect only if it spans the nodes"
            ));
        }
    }
    for runtime in runtimes {
        match &cluster.runtimes {
            Some(allowed) if allowed.contains(&runtime) => {}
            Some(allowed) => findings.note(format!(
                "images for {runtime} run only on nodes whose `{ALLOWED}` includes `{runtime}`; in the local configuration it is `{}`",
                allowed.join(",")
            )),
            None => findings.note(format!(
                "images for {runtime} run only on nodes whose `{ALLOWED}` includes `{runtime}`; the local configuration does not set it"
            )),
        }
    }
}
