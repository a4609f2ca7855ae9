//! Reads a job from the located tree.

use super::{
    diagnostic::Diagnostic,
    fields::{Map, Reader},
    formats::{Context, Describe, Format, OneLine, Scalar, alternatives, boolean},
    keys::{GANG, GANG_BACKOFF, JOB},
    nearest::nearest,
    printer::YamlValue,
    roles::PartialBackoff,
    tree::{self, Node, Value},
    units::port_range,
};
use std::rc::Rc;
use ydl_core::{
    Framework, JobSpec, JobSpecBuilder,
    spec::{Gang, PortRange},
};

/// Reads a job. Paths are relative to `base`, which is absolute; `name` is the default name. Without `cluster`, features
/// that only a cluster supports are rejected.
pub(crate) fn job(
    root: &Node,
    base: &str,
    name: &str,
    cluster: bool,
) -> Result<JobSpec, Vec<Diagnostic>> {
    let context = Rc::new(Context { base: base.to_owned(), cluster });
    let mut reader = Reader { context, ..Reader::default() };
    let map = reader.map(root, "", "");
    let mut builder = JobSpecBuilder { name: name.to_owned(), ..JobSpecBuilder::default() };
    reader.section(&map, &JOB, &mut builder);
    let Reader { mut diagnostics, reported, .. } = reader;
    if reported.contains("") {
        return Err(diagnostics);
    }
    match builder.build() {
        Ok(spec) if diagnostics.is_empty() => return Ok(spec),
        Ok(_) => {}
        Err(issues) => {
            for issue in issues.into_iter().filter(|issue| !reported.contains(&issue.key)) {
                let at = tree::locate(root, &issue.key);
                let hint = issue.hint.clone().unwrap_or_default();
                diagnostics.push(Diagnostic::new(at, issue.to_string()).hint(hint));
            }
        }
    }
    if diagnostics.is_empty() {
        // All issues were suppressed as consequences of a diagnostic; this is not expected without one.
        diagnostics.push(Diagnostic::new(root.at.clone(), "the job cannot be run"));
    }
    Err(diagnostics)
}

/// Port range.
pub(crate) const PORTS: Scalar<PortRange> = Scalar {
    kind: "range",
    python: "str",
    parse: |text, _| port_range(text),
    print: |range| format!("{}-{}", range.first, range.last),
};

/// Name of a framework.
pub(crate) struct FrameworkName;

impl Describe for FrameworkName {
    fn kind(&self) -> String {
        let names: Vec<_> = Framework::ALL.iter().map(ToString::to_string).collect();
        alternatives(names.iter().map(String::as_str))
    }

    fn python(&self) -> String {
        "str".to_owned()
    }
}

impl Format<Framework> for FrameworkName {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut Framework) {
        let parse = |text: &str| {
            text.parse::<Framework>().map_err(|what| {
                let hint = suggest(text).map(|suggestion| format!("did you mean `{suggestion}`?"));
                (what, hint.unwrap_or_default())
            })
        };
        match reader.value_of(node, path, parse) {
            Some(framework) => *value = framework,
            // Roles and gang cannot be checked without a framework.
            None => reader.reported.extend(["roles".to_owned(), "gang".to_owned()]),
        }
    }

    fn print(&self, framework: &Framework) -> YamlValue {
        YamlValue::Line(framework.to_string())
    }
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
    if let Some(suggestion) = nearest(plain, names.iter().map(|(name, _)| name.as_str())) {
        return suggestion.parse().ok();
    }
    // Short names are similar to anything.
    let long = others.iter().map(|(name, _)| *name);
    let suggestion = nearest(plain, long.filter(|name| name.len() >= 5))?;
    by_other(suggestion).map(|(_, framework)| *framework)
}

impl Reader {
    /// Reads `true`, `false` or a map.
    pub(crate) fn gang(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        job.gang.together = job.framework.starts_together();
        job.gang.resize = job.framework.resize_policy().unwrap_or_default();
        let Some(node) = map.find("gang") else {
            return;
        };
        if let Value::Scalar { .. } = node.value {
            let together = self.value_of(node, "gang", boolean);
            job.gang.together = together.unwrap_or(job.gang.together);
            return;
        }
        let map = self.map(node, "gang", GANG.path());
        self.section(&map, &GANG, &mut job.gang);
    }

    pub(crate) fn gang_backoff(&mut self, map: &Map, gang: &mut Gang) {
        let mut partial = PartialBackoff::default();
        self.read(map, "backoff", &OneLine(GANG_BACKOFF), &mut partial);
        gang.backoff = partial.complete(gang.backoff);
        if let (true, Some(node)) = (gang.backoff.initial > gang.backoff.max, map.find("backoff")) {
            let what = "`initial` is longer than `max`";
            self.reject(&node.at, &map.key("backoff"), what, "");
        }
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
