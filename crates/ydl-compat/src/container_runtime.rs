//! Variables of YARN's container runtime, translated into keys of the job file.

use ydl_jobfile::{Diagnostic, Location, Node, Value};

/// Prefix of the variables.
const PREFIX: &str = "YARN_CONTAINER_RUNTIME_";

/// Returns true for a variable that configures YARN's container runtime.
pub(crate) fn is_runtime_variable(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Variable of YARN's container runtime, with its location.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeVariable {
    pub name: String,
    pub value: String,
    pub at: Location,
}

/// Keys derived from the variables.
#[derive(Debug, Default)]
pub(crate) struct RuntimeKeys {
    /// The keys of `environment`.
    pub keys: Vec<(&'static str, Node)>,
    /// Errors for variables without an equivalent.
    pub diagnostics: Vec<Diagnostic>,
}

impl RuntimeKeys {
    /// Returns the value of a key.
    pub(crate) fn key(&self, name: &str) -> Option<&Node> {
        let found = self.keys.iter().find(|(key, _)| *key == name);
        found.map(|(_, node)| node)
    }

    /// Returns true if an image is named.
    pub(crate) fn has_image(&self) -> bool {
        self.key("docker").is_some() || self.key("runc").is_some()
    }
}

/// Translates the variables. `has_image` is true if a flag names an image.
pub(crate) fn translate(variables: &[RuntimeVariable], has_image: bool) -> RuntimeKeys {
    let mut keys = RuntimeKeys::default();
    let mut kind = None;
    for variable in variables {
        let RuntimeVariable { name, value, at } = variable;
        let text = || Node::text(at.clone(), value.as_str());
        let truth = || Node::plain(at.clone(), value.to_lowercase());
        let (key, node) = match name.strip_prefix(PREFIX).unwrap_or(name) {
            "TYPE" => {
                kind = Some(variable);
                continue;
            }
            "DOCKER_IMAGE" => ("docker", text()),
            "RUNC_IMAGE" => ("runc", text()),
            "DOCKER_MOUNTS" | "RUNC_MOUNTS" => {
                let mounts = value.split(',').filter(|mount| !mount.is_empty());
                let mounts = mounts.map(|mount| Node::text(at.clone(), mount));
                let value = Value::List(mounts.collect());
                let at = at.clone();
                ("mounts", Node { at, value })
            }
            "DOCKER_CONTAINER_NETWORK" => ("network", text()),
            "DOCKER_RUN_PRIVILEGED_CONTAINER" => ("privileged", truth()),
            "DOCKER_CLIENT_CONFIG" => ("login", text()),
            "DOCKER_DELAYED_REMOVAL" => ("keep", truth()),
            _ => {
                let what = format!("`{name}` has no equivalent in a job file");
                keys.diagnostics.push(Diagnostic::new(at.clone(), what).hint("remove it"));
                continue;
            }
        };
        keys.keys.retain(|(other, _)| *other != key);
        keys.keys.push((key, node));
    }
    keys.diagnostics.extend(kind.and_then(|kind| check_type(kind, &keys, has_image)));
    keys
}

/// Checks the chosen runtime type against the image.
fn check_type(kind: &RuntimeVariable, keys: &RuntimeKeys, has_image: bool) -> Option<Diagnostic> {
    let RuntimeVariable { name, value, at } = kind;
    let error = |what: String, hint: &str| Some(Diagnostic::new(at.clone(), what).hint(hint));
    match value.to_lowercase().as_str() {
        key @ ("docker" | "runc") if keys.key(key).is_none() && !(has_image && key == "docker") => {
            let image = format!("{PREFIX}{}_IMAGE", key.to_uppercase());
            let what = format!("`{name}` is `{key}`, but no image is set");
            error(what, &format!("set `{image}`"))
        }
        "docker" | "runc" => None,
        "default" | "" if !keys.has_image() => None,
        "default" | "" => {
            let what = format!("`{name}` is `{value}`, which uses no image, but one is set");
            error(what, "remove one of them")
        }
        _ => {
            let what = format!("`{name}`: runtime `{value}` is not supported");
            error(what, "use `docker`, `runc` or `default`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(variables: &[(&str, &str)]) -> RuntimeKeys {
        let variable = |(name, value): &(&str, &str)| RuntimeVariable {
            name: format!("{PREFIX}{name}"),
            value: (*value).to_owned(),
            at: Location::Whole,
        };
        let all: Vec<_> = variables.iter().map(variable).collect();
        translate(&all, false)
    }

    #[test]
    fn every_variable_is_translated_or_rejected() {
        let docker = translated(&[
            ("TYPE", "docker"),
            ("DOCKER_IMAGE", "python:3.11"),
            ("DOCKER_MOUNTS", "/a:/b:ro,/c:/d:rw"),
            ("DOCKER_CONTAINER_NETWORK", "bridge"),
            ("DOCKER_RUN_PRIVILEGED_CONTAINER", "True"),
            ("DOCKER_CLIENT_CONFIG", "hdfs:///login.json"),
            ("DOCKER_DELAYED_REMOVAL", "true"),
        ]);
        assert!(docker.diagnostics.is_empty(), "{docker:?}");
        let keys: Vec<_> = docker.keys.iter().map(|(key, _)| *key).collect();
        let all = ["docker", "mounts", "network", "privileged", "login", "keep"];
        assert_eq!(keys, all);
        assert!(translated(&[("TYPE", "runc"), ("RUNC_IMAGE", "x")]).diagnostics.is_empty());
        for wrong in [
            &[("TYPE", "docker")][..],
            &[("TYPE", "runc"), ("DOCKER_IMAGE", "x")],
            &[("TYPE", "default"), ("DOCKER_IMAGE", "x")],
            &[("TYPE", "javasandbox")],
            &[("DOCKER_PORTS_MAPPING", "80:80")],
        ] {
            assert_eq!(translated(wrong).diagnostics.len(), 1, "{wrong:?}");
        }
        assert!(translated(&[("TYPE", "default")]).diagnostics.is_empty());
    }
}
