//! Images: what can be known of whether a cluster runs them. Which its nodes allow, no client is told.

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
        let who = format!("role `{}`", role.name);
        // Attributes of nodes came with 3.2, kinds of resources with 3.1.
        if image.runtime == Runtime::Runc && cluster.constraints == Constraints::TooOld {
            findings.refuse(
                format!("{who} runs in an image with runc, which this Hadoop is too old for: that came with 3.3"),
                format!("use `{key}: {{docker: …}}`"),
            );
        } else if !image.mounts.is_empty() && cluster.kinds.is_none() {
            findings.refuse(
                format!("{who} asks for mounts in its image, which this Hadoop is too old for: they came with 3.1"),
                format!("leave `{key}.mounts` out"),
            );
        } else {
            runtimes.insert(image.runtime.to_string());
        }
        let network = image.network.as_deref().filter(|network| *network != "host");
        if let Some(network) = network.filter(|_| spec.task_count() > 1) {
            findings.note(format!(
                "{who} is in the network `{network}`: tasks of other nodes reach its own only if that network leads there"
            ));
        }
    }
    for runtime in runtimes {
        match &cluster.runtimes {
            Some(allowed) if allowed.contains(&runtime) => {}
            Some(allowed) => findings.note(format!(
                "images for {runtime} run only on nodes whose `{ALLOWED}` has `{runtime}`; in this configuration it is `{}`",
                allowed.join(",")
            )),
            None => findings.note(format!(
                "images for {runtime} run only on nodes whose `{ALLOWED}` has `{runtime}`, which cannot be seen from here"
            )),
        }
    }
}
