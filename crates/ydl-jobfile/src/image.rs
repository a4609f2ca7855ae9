//! Reads and prints images of a job and of a role.

use super::{
    environment,
    fields::{Map, Reader},
    files::hdfs_url,
    formats::{Context, Format, Scalar, text_of},
    keys::IMAGE,
    printer::{YamlValue, flow, text},
    tree::{Node, Value},
    units::Rejection,
};
use std::{fs, io};
use ydl_core::spec::{Environment, Image, Mount, RoleSpec, Runtime};

/// Runtimes of images, by their keys.
const RUNTIMES: [(&str, Runtime); 2] = [("docker", Runtime::Docker), ("runc", Runtime::Runc)];
/// Keys that apply to packed environments only.
const PACKED_KEYS: [&str; 2] = ["path", "interpreter"];

/// Credentials of a registry.
pub(crate) const LOGIN: Scalar<String> =
    text_of("path in HDFS or on every node", |text, _| login(text));

/// Directory of the node in the container.
pub(crate) const MOUNT: Scalar<Mount> =
    Scalar { kind: "mount", python: "str", parse: mount, print: |mount| text(&mount.to_string()) };

impl Reader {
    /// Reads the image of a map, if it has one.
    pub(crate) fn image(&mut self, node: &Node, map: &Map) -> Option<Environment> {
        let mut named =
            RUNTIMES.iter().filter_map(|(key, runtime)| Some((*key, *runtime, map.find(key)?)));
        let Some((key, runtime, name)) = named.next() else {
            for other in IMAGE.fields.iter().map(|field| field.key.name()) {
                if let Some(at) = map.find(other) {
                    let what = "it applies to images only";
                    let hint = "add an image: `{docker: registry/image:tag, …}`";
                    self.reject(&at.at, &map.key(other), what, hint);
                }
            }
            return None;
        };
        if let Some((other, _, at)) = named.next() {
            let what = format!("it conflicts with `{key}`");
            self.reject(&at.at, &map.key(other), what, "remove one of them");
        }
        for other in PACKED_KEYS {
            if let Some(at) = map.find(other) {
                let what = "it does not apply to images";
                let hint = format!("remove it, or remove `{key}`");
                self.reject(&at.at, &map.key(other), what, hint);
            }
        }
        let name = self.text_of(name, &map.key(key)).unwrap_or_default();
        let mut image = Image::new(runtime, name);
        self.section(map, &IMAGE, &mut image);
        for (name, (what, hint)) in unsupported(&image, key, self.context.cluster) {
            let at = map.find(name).map_or(&node.at, |found| &found.at);
            self.reject(at, &map.key(name), what, hint);
        }
        Some(Environment::Image(image))
    }

    /// Reads the environment of a role, if it has its own.
    pub(crate) fn role_environment(&mut self, map: &Map, role: &mut RoleSpec) {
        let Some(node) = map.find("environment") else {
            return;
        };
        let path = map.key("environment");
        if let Value::Map(_) = node.value {
            let inner = self.map(node, &path, IMAGE.path());
            role.environment = self.image(node, &inner);
            let reported = || self.reported.iter().any(|reported| reported.starts_with(&path));
            if role.environment.is_none() && !reported() {
                let (what, hint) = not_for_a_role();
                self.reject(&node.at, &path, what, hint);
            }
            return;
        }
        let cluster = self.context.cluster;
        role.environment = self.value_of(node, &path, |text| match text {
            "system" => Ok(Environment::System),
            _ => named(text, cluster).unwrap_or_else(|| Err(not_for_a_role())),
        });
    }
}

fn not_for_a_role() -> Rejection {
    (
        "the environment of a role is `system` or an image; packed environments are set for the job".into(),
        "set `environment` of the job, or use `{docker: registry/image:tag}`".into(),
    )
}

/// Parses an image given as `docker://registry/image:tag`.
pub(crate) fn named(text: &str, cluster: bool) -> Option<Result<Environment, Rejection>> {
    let (scheme, name) = text.split_once("://")?;
    let (key, runtime) = RUNTIMES.iter().find(|(key, _)| *key == scheme)?;
    let image = Image::new(*runtime, name);
    let rejection = unsupported(&image, key, cluster).into_iter().next();
    Some(match rejection {
        Some((_, rejection)) => Err(rejection),
        None => Ok(Environment::Image(image)),
    })
}

/// Returns what the target of the job does not support, by key.
fn unsupported(image: &Image, key: &'static str, cluster: bool) -> Vec<(&'static str, Rejection)> {
    let mut rejections = Vec::new();
    let mut add = |key, what: &str, hint: &str| rejections.push((key, (what.into(), hint.into())));
    if cluster {
        if image.has_digest() && image.runtime == Runtime::Docker {
            let what = "YARN's `container-executor` does not support image digests";
            add(key, what, "use a tag");
        }
        if image.network.as_deref() == Some("none") {
            let what = "agents need a network to reach the master";
            add("network", what, "remove it, or use another network");
        }
        return rejections;
    }
    if image.runtime == Runtime::Runc {
        let what = "runc images are supported on a cluster only";
        add(key, what, "use `docker` here, or `--cluster yarn`");
    }
    if image.keep {
        let what = "containers are not kept on one machine";
        add("keep", what, "remove it");
    }
    rejections
}

fn mount(text: &str, context: &Context) -> Result<Mount, Rejection> {
    let mount = Mount::parse(text)?;
    // Invalid paths are reported by the check of the job.
    let is_invalid = !mount.from.starts_with('/') || mount.from.split('/').any(|it| it == "..");
    match context.cluster || is_invalid {
        true => Ok(mount),
        false => check_exists(&mount.from).map(|()| mount),
    }
}

/// Parses the path of a registry's credentials: in HDFS, or on every node.
fn login(text: &str) -> Result<String, Rejection> {
    let hint =
        "copy the `config.json` of `docker login` there, and use `hdfs:///user/me/docker.json`";
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text),
        None if text.starts_with('/') => Ok(text.to_owned()),
        // Credentials must not be printed.
        _ => Err(("expected the path of a file that nodes can read".into(), hint.into())),
    }
}

fn check_exists(path: &str) -> Result<(), Rejection> {
    match fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((format!("`{path}` does not exist on this machine"), String::new()))
        }
        Err(error) => {
            let why = ydl_os::reason(&error);
            Err((format!("`{path}` cannot be accessed: {why}"), String::new()))
        }
    }
}

/// Prints an image.
pub(crate) fn print(image: &Image) -> YamlValue {
    let mut entries = vec![(image.runtime.to_string(), YamlValue::Line(text(&image.name)))];
    if let YamlValue::Block(options) = IMAGE.print(image) {
        entries.extend(options);
    }
    YamlValue::Line(flow(&YamlValue::Block(entries)))
}

/// Prints the environment of a role, if it has its own.
pub(crate) fn print_of_role(role: &RoleSpec) -> YamlValue {
    role.environment.as_ref().map_or(YamlValue::Omitted, environment::print)
}
