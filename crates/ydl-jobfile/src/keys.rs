//! Table of all job-file keys, in the order in which they are read, printed and documented.
//!
//! A key is one [`field!`]: its path, format, field of the job's specification and description. The reader, the printer,
//! the reference page and the keywords of the Python package come from it. Sections are in the files of `keys/`.

/// Defines a key:
///
/// ```text
/// field! {
///     /// Description.
///     "path.of.key" = FORMAT => field.of.the.part,
///     example "value", default "text if it cannot be computed", also ["names that users may try instead"]
/// }
/// ```
///
/// A structured key has `by_hand(KIND, PYTHON, READ, PRINT)` instead of a format and a field: `READ` gets the map with
/// the key, also if the key is absent. A key that another one reads has `described(KIND, PYTHON)`.
macro_rules! field {
    ($(#[doc = $about:literal])+ $path:literal = by_hand($kind:expr, $python:literal, $read:expr, $print:expr),
        $($rest:tt)+) => {
        $crate::keys::Field {
            key: spec!($path, || ($kind).into(), || $python.into(), [$($about),+], $($rest)+),
            read: $read,
            print: $print,
        }
    };
    ($(#[doc = $about:literal])+ $path:literal = described($kind:expr, $python:literal), $($rest:tt)+) => {
        $crate::keys::Field {
            key: spec!($path, || ($kind).into(), || $python.into(), [$($about),+], $($rest)+),
            read: |_, _, _| {},
            print: |_| $crate::printer::YamlValue::Omitted,
        }
    };
    ($(#[doc = $about:literal])+ $path:literal = $format:expr => $($field:ident).+, $($rest:tt)+) => {
        $crate::keys::Field {
            key: spec!(
                $path,
                || $crate::formats::Describe::kind(&$format),
                || $crate::formats::Describe::python(&$format),
                [$($about),+],
                $($rest)+
            ),
            read: |reader, map, part| {
                reader.read(map, $crate::keys::last($path), &$format, &mut part.$($field).+);
            },
            print: |part| $crate::formats::Format::print(&$format, &part.$($field).+),
        }
    };
}

macro_rules! spec {
    ($path:literal, $kind:expr, $python:expr, [$($about:literal),+], example $example:literal
        $(, default $default:literal)? $(, also [$($also:literal),+ $(,)?])? $(,)?) => {
        $crate::keys::KeySpec {
            path: $path,
            kind: $kind,
            python: $python,
            default: [$($default,)? ""][0],
            example: $example,
            about: &[$($about),+],
            also: &[$($($also),+)?],
        }
    };
}

mod cluster;
mod data;
mod environment;
mod job;
mod local;
mod policy;
mod restart;
mod role;
mod tracking;

pub(crate) use cluster::{ACLS, KEYTAB, MASTER};
pub(crate) use data::{FILE, INPUT, OUTPUT};
pub(crate) use environment::IMAGE;
pub(crate) use job::JOB;
pub(crate) use local::LOCAL;
pub(crate) use policy::{GANG, GANG_BACKOFF, NODE_EXCLUSION, TIMEOUTS};
pub(crate) use restart::{RESTART, RESTART_BACKOFF};
pub(crate) use role::{INSTANCES, MEMORY_GROWTH, PLACEMENT, ROLE};
pub(crate) use tracking::{MLFLOW, TENSORBOARD};

use super::{
    fields::{Map, Reader},
    formats::Format,
    printer::YamlValue,
};

/// Description of a job-file key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    /// Full path; `*` stands for a user-defined name.
    pub path: &'static str,
    /// Returns the type of the value.
    pub kind: fn() -> String,
    /// Returns its type in Python.
    pub python: fn() -> String,
    /// Default in words; empty if it is computed.
    pub default: &'static str,
    /// Example value.
    pub example: &'static str,
    /// Lines of the description.
    pub about: &'static [&'static str],
    /// Names that users may try instead.
    pub also: &'static [&'static str],
}

impl KeySpec {
    /// Returns the last part of the path.
    pub(crate) fn name(&self) -> &'static str {
        last(self.path)
    }

    /// Returns the path of the parent, empty at the top.
    pub(crate) fn parent(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }

    /// Returns the description on one line.
    pub(crate) fn description(&self) -> String {
        let lines: Vec<_> = self.about.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }
}

/// Returns the last part of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A key and its field of `T`, a part of a job's specification.
pub(crate) struct Field<T: 'static> {
    pub key: KeySpec,
    /// Reads the key from a map.
    pub read: fn(&mut Reader, &Map, &mut T),
    /// Prints the value.
    pub print: fn(&T) -> YamlValue,
}

/// Keys of a part of a job's specification.
pub(crate) struct Section<T: 'static> {
    /// Returns the part with all defaults.
    pub default: fn() -> T,
    pub fields: &'static [Field<T>],
}

impl<T> Section<T> {
    /// Returns the path of the section.
    pub(crate) fn path(&self) -> &'static str {
        self.fields.first().map_or("", |field| field.key.parent())
    }

    /// Prints an optional part.
    pub(crate) fn optional(&self, part: Option<&T>) -> YamlValue {
        part.map_or(YamlValue::Omitted, |part| self.print(part))
    }
}

/// Section of any part.
trait AnySection {
    fn specs(&self) -> Vec<&'static KeySpec>;

    /// Returns the defaults of all keys in words.
    fn defaults(&self) -> Vec<String>;
}

impl<T> AnySection for Section<T> {
    fn specs(&self) -> Vec<&'static KeySpec> {
        self.fields.iter().map(|field| &field.key).collect()
    }

    fn defaults(&self) -> Vec<String> {
        let part = (self.default)();
        let default = |field: &Field<T>| match ((field.print)(&part), field.key.default) {
            (YamlValue::Line(value), "") => format!("`{value}`"),
            (YamlValue::Block(entries), "") if !entries.is_empty() => "see below".to_owned(),
            (_, "") => "none".to_owned(),
            (_, words) => words.to_owned(),
        };
        self.fields.iter().map(default).collect()
    }
}

/// Sections, in the order of the page.
const SECTIONS: &[&dyn AnySection] = &[
    &JOB,
    &environment::PACKED,
    &IMAGE,
    &FILE,
    &INPUT,
    &ROLE,
    &INSTANCES,
    &MEMORY_GROWTH,
    &PLACEMENT,
    &RESTART,
    &RESTART_BACKOFF,
    &OUTPUT,
    &GANG,
    &GANG_BACKOFF,
    &TIMEOUTS,
    &NODE_EXCLUSION,
    &TENSORBOARD,
    &MLFLOW,
    &ACLS,
    &KEYTAB,
    &MASTER,
    &LOCAL,
];

/// Returns all keys.
pub(crate) fn keys() -> impl Iterator<Item = &'static KeySpec> {
    SECTIONS.iter().flat_map(|section| section.specs())
}

/// Returns all keys with their defaults in words.
pub(crate) fn keys_with_defaults() -> impl Iterator<Item = (&'static KeySpec, String)> {
    SECTIONS.iter().flat_map(|section| section.specs().into_iter().zip(section.defaults()))
}

/// Returns the direct children of a key.
pub(crate) fn below(parent: &str) -> impl Iterator<Item = &'static KeySpec> {
    keys().filter(move |key| key.parent() == parent)
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
                "roles.*.placement.strict" => "roles.worker.placement.nodes=[node1]",
                "files.*.unpack" => "files.worker.source=data.zip",
                "files.*.ignore" => "files.worker.source=venv",
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
