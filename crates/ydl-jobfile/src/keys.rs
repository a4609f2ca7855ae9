//! Table of all job-file keys, in the order of the reference page. The reader rejects keys that are not in it, and the
//! page is generated from it. Each section is a file in `keys/`.

mod boards;
mod cluster;
mod data;
mod environment;
mod job;
mod outputs;
mod policy;
mod restart;
mod role;

/// Description of a job-file key.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Full path; `*` stands for a user-defined name.
    pub path: &'static str,
    /// Type of the value.
    pub kind: &'static str,
    /// Default.
    pub default: &'static str,
    /// Example value.
    pub example: &'static str,
    /// Description.
    pub about: &'static str,
    /// Names that users may try instead.
    pub also: &'static [&'static str],
}

impl KeySpec {
    /// Returns the last part of the path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Returns the path of the parent, empty at the top.
    pub fn parent(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }
}

/// Sections, in the order of the page.
const SECTIONS: &[&[KeySpec]] = &[
    job::KEYS,
    environment::KEYS,
    data::KEYS,
    role::KEYS,
    restart::KEYS,
    outputs::KEYS,
    policy::KEYS,
    boards::KEYS,
    cluster::KEYS,
];

/// Returns all keys.
pub fn keys() -> impl Iterator<Item = &'static KeySpec> {
    SECTIONS.iter().copied().flatten()
}

/// Returns the direct children of a key.
pub fn below(parent: &str) -> impl Iterator<Item = &'static KeySpec> {
    keys().filter(move |key| key.parent() == parent)
}

const fn key(
    path: &'static str,
    kind: &'static str,
    default: &'static str,
    example: &'static str,
    about: &'static str,
) -> KeySpec {
    KeySpec { path, kind, default, example, about, also: &[] }
}

const fn known_as(key: KeySpec, also: &'static [&'static str]) -> KeySpec {
    KeySpec { also, ..key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;

    /// Loads a job file for the example of every key.
    #[test]
    fn the_example_of_every_key_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["data.csv", "data.zip", "alice.keytab", "mlflow.token"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
        let file = dir.path().join("job.yaml");
        for key in keys() {
            // The command of a role comes from the example of `run` or `shell`, else from here.
            let has_command = key.path == "roles.*.run" || key.path == "roles.*.shell";
            let role = if has_command { "{}" } else { "{run: sleep 1}" };
            std::fs::write(&file, format!("roles: {{worker: {role}}}")).unwrap();
            let mut source = load(&file).unwrap();
            source.for_cluster();
            source.set(&format!("{}={}", key.path.replace('*', "worker"), key.example));
            // A range is whole, and its tasks start together.
            if key.path.starts_with("roles.*.instances.") {
                source.set("gang=true");
                for (part, value) in [("min", 1), ("max", 8)] {
                    if !key.path.ends_with(part) {
                        source.set(&format!("roles.worker.instances.{part}={value}"));
                    }
                }
            }
            let needs = match key.path {
                "roles.*.memory_growth.percent" => "roles.worker.memory_growth.max=8 GiB",
                "files.*.unpack" => "files.worker.source=data.zip",
                "environment.interpreter" => "environment.path=venv",
                "environment.mounts"
                | "environment.network"
                | "environment.privileged"
                | "environment.login"
                | "environment.keep" => "environment.docker=python:3.11",
                "inputs.*.as" | "inputs.*.roles" | "inputs.*.allow_empty" => {
                    "inputs.worker.source=/data"
                }
                "outputs.*.from" | "outputs.*.every" | "outputs.*.existing" => {
                    "outputs.worker.to=out/{index}"
                }
                "keytab.principal" => "keytab.path=alice.keytab",
                "keytab.path" => "keytab.principal=alice",
                "mlflow.user" => "mlflow.token_file=mlflow.token",
                "mlflow.experiment" | "mlflow.run_name" | "mlflow.tags" | "mlflow.token_file" => {
                    "mlflow.uri=http://127.0.0.1:5000"
                }
                _ => "name=example",
            };
            source.set(needs);
            if key.path == "mlflow.user" {
                source.set("mlflow.uri=http://127.0.0.1:5000");
            }
            if let Err(diagnostics) = source.job() {
                panic!("{}: {diagnostics}", key.path);
            }
        }
    }

    #[test]
    fn keys_are_unique_and_follow_their_parents() {
        let keys: Vec<_> = keys().collect();
        for (n, key) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other.path != key.path), "{}", key.path);
            let parent = key.parent().trim_end_matches(".*");
            assert!(parent.is_empty() || keys[..n].iter().any(|other| other.path == parent));
        }
    }
}
