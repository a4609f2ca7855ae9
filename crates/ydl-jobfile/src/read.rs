//! Reads a job from the located tree.

use super::{
    diagnostic::Diagnostic,
    fields::{Map, Reader, boolean, count, or_none},
    nearest::nearest,
    tree::{self, Node, Value},
    units::{port_range, size_mib, span},
};
use ydl_core::{
    Framework, JobSpec, JobSpecBuilder,
    spec::{Backoff, Gang, NodeExclusion, Timeouts},
};

/// Reads a job. Paths are relative to `base`, which is absolute; `name` is the default name. Without `cluster`, features
/// that only a cluster supports are rejected.
pub fn job(root: &Node, base: &str, name: &str, cluster: bool) -> Result<JobSpec, Vec<Diagnostic>> {
    let mut reader = Reader { cluster, ..Reader::default() };
    let map = reader.map(root, "", "");
    let framework = reader.framework(&map);
    let draft = JobSpecBuilder {
        name: reader.text(&map, "name").unwrap_or_else(|| name.to_string()),
        framework,
        cluster_flags: reader.value(&map, "cluster_flags", boolean).unwrap_or(false),
        environment: reader.environment(&map, base),
        files: reader.files(&map, base),
        inputs: reader.inputs(&map, base),
        disk_mib: reader.value(&map, "disk", size_mib),
        roles: {
            let mut roles = reader.roles(&map, framework);
            roles.extend(reader.tensorboard(&map, base));
            roles
        },
        outputs: reader.outputs(&map, base),
        env: reader.env(&map),
        gang: reader.gang(&map, framework),
        timeouts: reader.timeouts(&map),
        node_exclusion: reader.node_exclusion(&map),
        ports: reader.value(&map, "ports", port_range).unwrap_or_default(),
        cluster_options: reader.on_cluster(&map, base),
    };
    let Reader { mut diagnostics, reported, .. } = reader;
    if reported.contains("") {
        return Err(diagnostics);
    }
    match draft.build() {
        Ok(spec) if diagnostics.is_empty() => return Ok(spec),
        Ok(_) => {}
        Err(complaints) => {
            for complaint in complaints.into_iter().filter(|c| !reported.contains(&c.key)) {
                let at = tree::locate(root, &complaint.key);
                let hint = complaint.hint.clone().unwrap_or_default();
                diagnostics.push(Diagnostic::new(at, complaint.to_string()).hint(hint));
            }
        }
    }
    if diagnostics.is_empty() {
        // All issues were suppressed as consequences of a diagnostic; this is not expected without one.
        diagnostics.push(Diagnostic::new(root.at.clone(), "the job cannot be run"));
    }
    Err(diagnostics)
}

/// Suggests a framework for an alternative name, a name with a version, or a typo.
fn suggest(text: &str) -> Option<Framework> {
    let plain = text.to_ascii_lowercase().replace('_', "-");
    // Ignore versions.
    let end = plain.find(|c: char| c.is_ascii_digit() || "=<>~!@:".contains(c));
    let plain = plain[..end.unwrap_or(plain.len())].trim_end_matches(['-', 'v', ' ']);
    let all = || Framework::ALL.iter().copied();
    let names: Vec<_> = all().map(|it| (it.to_string(), it)).collect();
    let others = all().flat_map(|it| it.aliases().iter().map(move |name| (*name, it)));
    let others: Vec<_> = others.collect();
    let by_other = |name: &str| others.iter().find(|(other, _)| *other == name);
    if let Some((_, framework)) = by_other(plain) {
        return Some(*framework);
    }
    if let Some(near) = nearest(plain, names.iter().map(|(name, _)| name.as_str())) {
        return near.parse().ok();
    }
    // Short names are similar to anything.
    let long = others.iter().map(|(name, _)| *name);
    let near = nearest(plain, long.filter(|name| name.len() >= 5))?;
    by_other(near).map(|(_, framework)| *framework)
}

impl Reader {
    fn framework(&mut self, map: &Map) -> Framework {
        let read = |text: &str| {
            text.parse::<Framework>().map_err(|what| {
                let hint = suggest(text).map(|near| format!("did you mean `{near}`?"));
                (what, hint.unwrap_or_default())
            })
        };
        let found = self.value(map, "framework", read);
        if found.is_none() && map.find("framework").is_some() {
            // Roles and gang cannot be checked without a framework.
            self.reported.extend(["roles".to_string(), "gang".to_string()]);
        }
        found.unwrap_or(Framework::None)
    }

    fn gang(&mut self, map: &Map, framework: Framework) -> Gang {
        let mut gang = Gang {
            together: framework.starts_together(),
            reform: framework.resize_policy().unwrap_or_default(),
            ..Gang::default()
        };
        let Some(node) = map.find("gang") else {
            return gang;
        };
        if let Value::Scalar { .. } = node.value {
            gang.together = self.value_of(node, "gang", boolean).unwrap_or(gang.together);
            return gang;
        }
        let map = self.map(node, "gang", "gang");
        let (first, most) = self.backoff(&map, "gang.backoff");
        let first = first.unwrap_or(gang.backoff.initial);
        gang.backoff = Backoff { initial: first, max: most.unwrap_or(gang.backoff.max.max(first)) };
        if gang.backoff.initial > gang.backoff.max {
            let at = map.find("backoff").map_or(&node.at, |node| &node.at);
            let what = "`initial` is longer than `max`";
            self.reject(at, "gang.backoff", what, "");
        }
        gang.together = self.value(&map, "together", boolean).unwrap_or(gang.together);
        gang.hold = self.value(&map, "hold", span).unwrap_or(gang.hold);
        gang.retries = self.value(&map, "retries", count).unwrap_or(gang.retries);
        gang.settle = self.value(&map, "settle", span).unwrap_or(gang.settle);
        gang
    }

    fn timeouts(&mut self, map: &Map) -> Timeouts {
        let mut all = Timeouts::default();
        let Some(node) = map.find("timeouts") else {
            return all;
        };
        let map = self.map(node, "timeouts", "timeouts");
        all.run = self.value(&map, "run", or_none(span)).unwrap_or(all.run);
        let spans = [
            ("allocation", &mut all.allocation),
            ("launch", &mut all.launch),
            ("join", &mut all.join),
            ("fetch", &mut all.fetch),
            ("start", &mut all.start),
            ("follow", &mut all.follow),
            ("heartbeat", &mut all.heartbeat),
            ("grace", &mut all.grace),
            ("stop", &mut all.stop),
            ("upload", &mut all.upload),
        ];
        for (name, place) in spans {
            *place = self.value(&map, name, span).unwrap_or(*place);
        }
        all
    }

    fn node_exclusion(&mut self, map: &Map) -> NodeExclusion {
        let mut exclusion = NodeExclusion::default();
        let Some(node) = map.find("node_exclusion") else {
            return exclusion;
        };
        let map = self.map(node, "node_exclusion", "node_exclusion");
        exclusion.failures = self.value(&map, "failures", count).unwrap_or(exclusion.failures);
        exclusion.timeout = self.value(&map, "timeout", span).unwrap_or(exclusion.timeout);
        exclusion.max_nodes = self.value(&map, "max_nodes", count).unwrap_or(exclusion.max_nodes);
        exclusion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternative_framework_names_are_suggested() {
        for (text, found) in [
            ("torch", Some(Framework::Pytorch)),
            ("PyTorch", Some(Framework::Pytorch)),
            ("py-torch", Some(Framework::Pytorch)),
            ("pytorch==2.3", Some(Framework::Pytorch)),
            ("troch", Some(Framework::Pytorch)),
            ("tf", Some(Framework::Tensorflow)),
            ("TF2", Some(Framework::Tensorflow)),
            ("tensorflow2", Some(Framework::Tensorflow)),
            ("tensorflow-1.15", Some(Framework::Tensorflow)),
            ("keras", Some(Framework::Tensorflow)),
            ("xgb", Some(Framework::Xgboost)),
            ("xboost", Some(Framework::Xgboost)),
            ("lgbm", Some(Framework::Lightgbm)),
            ("light_gbm", Some(Framework::Lightgbm)),
            ("hvd", Some(Framework::Horovod)),
            ("horvod", Some(Framework::Horovod)),
            ("mx", Some(Framework::Mxnet)),
            ("flax", Some(Framework::Jax)),
            ("jaxx", Some(Framework::Jax)),
            ("shell", Some(Framework::None)),
            ("spark", None),
            ("2.0", None),
            ("", None),
        ] {
            assert_eq!(suggest(text), found, "{text}");
        }
    }
}
