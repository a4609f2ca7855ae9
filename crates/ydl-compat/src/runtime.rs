//! Translation of YARN's container runtime variables into keys of the job file.

use ydl_jobfile::{Diagnostic, Location, Node, Value};

/// Prefix of the variables.
const BEGIN: &str = "YARN_CONTAINER_RUNTIME_";

/// Returns true for a variable that configures YARN's container runtime.
pub fn is_one(name: &str) -> bool {
    name.starts_with(BEGIN)
}

/// A variable of that kind, and where it stands.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub value: String,
    pub at: Location,
}

/// Keys derived from the variables.
#[derive(Debug, Default)]
pub struct Told {
    /// The keys of `environment`.
    pub keys: Vec<(&'static str, Node)>,
    /// Errors for variables without an equivalent.
    pub diagnostics: Vec<Diagnostic>,
}

impl Told {
    /// Returns the value of a key.
    pub fn key(&self, name: &str) -> Option<&Node> {
        let found = self.keys.iter().find(|(key, _)| *key == name);
        found.map(|(_, node)| node)
    }

    /// Returns true if an image is named.
    pub fn has_image(&self) -> bool {
        self.key("docker").is_some() || self.key("runc").is_some()
    }
}

/// Reads them. `named` says that the image is named elsewhere.
pub fn read(variables: &[Variable], named: bool) -> Told {
    let mut told = Told::default();
    let mut kind = None;
    for variable in variables {
        let Variable { name, value, at } = variable;
        let text = || Node::text(at.clone(), value.as_str());
        let truth = || Node::plain(at.clone(), value.to_lowercase());
        let (key, node) = match name.strip_prefix(BEGIN).unwrap_or(name) {
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
                let what = format!("`{name}` has no equal in a job file");
                told.diagnostics.push(Diagnostic::new(at.clone(), what).hint("leave it out"));
                continue;
            }
        };
        told.keys.retain(|(other, _)| *other != key);
        told.keys.push((key, node));
    }
    told.diagnostics.extend(kind.and_then(|kind| misfit(kind, &told, named)));
    told
}

/// Checks the chosen runtime type against the image.
fn misfit(kind: &Variable, told: &Told, named: bool) -> Option<Diagnostic> {
    let Variable { name, value, at } = kind;
    let wrong = |what: String, hint: &str| Some(Diagnostic::new(at.clone(), what).hint(hint));
    match value.to_lowercase().as_str() {
        key @ ("docker" | "runc") if told.key(key).is_none() && !(named && key == "docker") => {
            let image = format!("{BEGIN}{}_IMAGE", key.to_uppercase());
            let what = format!("`{name}` is `{key}`, and no image is named");
            wrong(what, &format!("set `{image}`"))
        }
        "docker" | "runc" => None,
        "default" | "" if !told.has_image() => None,
        "default" | "" => {
            let what = format!("`{name}` is `{value}`, which runs no image, and one is named");
            wrong(what, "leave one of them out")
        }
        _ => {
            let what = format!("`{name}`: ydl runs nothing in `{value}`");
            wrong(what, "it is `docker`, `runc` or `default`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)]) -> Told {
        let variable = |(name, value): &(&str, &str)| Variable {
            name: format!("{BEGIN}{name}"),
            value: (*value).to_owned(),
            at: Location::Whole,
        };
        let all: Vec<_> = variables.iter().map(variable).collect();
        read(&all, false)
    }

    #[test]
    fn every_variable_is_understood_or_refused() {
        let docker = told(&[
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
        assert!(told(&[("TYPE", "runc"), ("RUNC_IMAGE", "x")]).diagnostics.is_empty());
        for wrong in [
            &[("TYPE", "docker")][..],
            &[("TYPE", "runc"), ("DOCKER_IMAGE", "x")],
            &[("TYPE", "default"), ("DOCKER_IMAGE", "x")],
            &[("TYPE", "javasandbox")],
            &[("DOCKER_PORTS_MAPPING", "80:80")],
        ] {
            assert_eq!(told(wrong).diagnostics.len(), 1, "{wrong:?}");
        }
        assert!(told(&[("TYPE", "default")]).diagnostics.is_empty());
    }
}
