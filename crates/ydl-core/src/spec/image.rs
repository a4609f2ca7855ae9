//! Container images: name, mounts and validation.

use super::{Environment, JobSpecBuilder, RoleSpec, validate::SpecIssues};
use crate::id::RoleName;
use alloc::{
    borrow::ToOwned,
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Maximum length of an image reference.
const LONGEST_REFERENCE: usize = 255;
const LONGEST_TAG: usize = 128;
/// Maximum number of mounts, few enough for one environment variable.
const MOST_MOUNTS: usize = 64;
/// Maximum length of a path on Linux.
const LONGEST_PATH: usize = 4095;
const LONGEST_NETWORK: usize = 64;

/// A container image and its run options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Container runtime.
    pub runtime: Runtime,
    /// Reference: `[registry[:port]/]name[:tag]`.
    pub name: String,
    /// Mounts of node paths.
    pub mounts: Vec<Mount>,
    /// Network; chosen by the runtime by default.
    pub network: Option<String>,
    /// Run the container privileged.
    pub privileged: bool,
    /// File with the registry credentials, read on the nodes.
    pub login: Option<String>,
    /// Keep the container for a while after its end, for debugging.
    pub keep: bool,
}

/// Container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// A Docker engine.
    Docker,
    /// YARN itself, with runc and an image in HDFS.
    Runc,
}

/// A mount of a node path in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the node.
    pub from: String,
    /// Path in the container.
    pub to: String,
    /// True if the mount is writable.
    pub writable: bool,
}

impl Image {
    /// Returns an image with default options.
    pub fn new(runtime: Runtime, name: impl Into<String>) -> Image {
        Image {
            runtime,
            name: name.into(),
            mounts: Vec::new(),
            network: None,
            privileged: false,
            login: None,
            keep: false,
        }
    }

    /// Returns true if the reference has a digest.
    pub fn has_digest(&self) -> bool {
        self.name.contains("@sha256:")
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Runtime::Docker => "docker",
            Runtime::Runc => "runc",
        })
    }
}

impl fmt::Display for Mount {
    /// Formats the mount as in a job file and for YARN.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.writable { "rw" } else { "ro" };
        write!(f, "{}:{}:{mode}", self.from, self.to)
    }
}

impl Mount {
    /// Parses `host:container:ro` or `host:container:rw`; returns an error and a hint.
    pub fn parse(text: &str) -> Result<Mount, (String, String)> {
        let parts: Vec<_> = text.split(':').collect();
        let wrong = |message: String, hint: &str| Err((message, hint.to_owned()));
        let form = "write `/path/on/the/node:/path/in/the/image:ro`";
        let (from, to, mode) = match parts.as_slice() {
            [from, to, mode] => (*from, *to, *mode),
            [_, _] => {
                let message = format!("`{text}` has no mode");
                return wrong(message, "add `:ro`, or `:rw` if programs write there");
            }
            _ => return wrong(format!("`{text}` is not a mount"), form),
        };
        let writable = match mode {
            "ro" => false,
            "rw" => true,
            other => {
                let message = format!("`{other}` in `{text}` is neither `ro` nor `rw`");
                return wrong(message, "");
            }
        };
        Ok(Mount { from: from.to_owned(), to: to.to_owned(), writable })
    }

    fn issue(&self, runtime: Runtime) -> Option<(String, &'static str)> {
        if let Some(wrong) = path(&self.from, "on the node") {
            let hint = match self.from.starts_with('/') {
                true => "",
                false => {
                    "files of the job come along with `files`; a mount is a path that every node has"
                }
            };
            return Some((wrong, hint));
        }
        if let Some(wrong) = path(&self.to, "in the image") {
            return Some((wrong, ""));
        }
        let to = self.to.trim_end_matches('/');
        if to.is_empty() {
            let message = format!("`{self}` would hide the image itself");
            return Some((message, "name a directory in it"));
        }
        if runtime == Runtime::Runc && matches!(to, "/tmp" | "/var/tmp") {
            let message =
                format!("`{to}` of a runc container is its own, and nothing can be mounted there");
            return Some((message, "choose another place in the image"));
        }
        None
    }
}

/// Returns the reason why a path cannot be part of a mount.
fn path(text: &str, place: &str) -> Option<String> {
    if text.is_empty() {
        return Some(format!("a mount has no path {place}"));
    }
    let shown: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if !text.starts_with('/') {
        Some(format!("`{shown}` is not an absolute path {place}"))
    } else if text.split('/').any(|part| part == "..") {
        Some(format!("`{shown}` holds `..`"))
    } else if let Some(odd) = text.chars().find(|c| ":,;\"\\$`<>{}".contains(*c) || c.is_control())
    {
        let odd = odd.escape_default();
        Some(format!("`{shown}` holds `{odd}`, which no mount can have"))
    } else if text.len() > LONGEST_PATH {
        Some(format!("`{shown}…` is longer than any path can be"))
    } else {
        None
    }
}

impl JobSpecBuilder {
    /// Returns the environment of a role.
    pub fn environment_of(&self, role: &RoleName) -> &Environment {
        let own = self.roles.iter().find(|it| it.name == *role);
        let own = own.and_then(|role| role.environment.as_ref());
        own.unwrap_or(&self.environment)
    }

    /// Returns the image of a role, if any.
    pub fn image_of(&self, role: &RoleName) -> Option<&Image> {
        self.environment_of(role).image()
    }

    /// Returns the roles with images.
    pub fn images(&self) -> impl Iterator<Item = (&RoleSpec, &Image)> {
        self.roles.iter().filter_map(|role| Some((role, self.image_of(&role.name)?)))
    }
}

impl Environment {
    /// Returns the image, if the environment is one.
    pub fn image(&self) -> Option<&Image> {
        match self {
            Environment::Image(image) => Some(image),
            Environment::System
            | Environment::Directory(_)
            | Environment::Requirements(_)
            | Environment::Pex(_)
            | Environment::Archive(_) => None,
        }
    }
}

/// Validates the images of a job.
pub(super) fn check(all: &mut SpecIssues, builder: &JobSpecBuilder) {
    if let Some(image) = builder.environment.image() {
        of_image(all, "environment", image);
    }
    for role in &builder.roles {
        let key = format!("roles.{}.environment", role.name);
        match &role.environment {
            None | Some(Environment::System) => {}
            Some(Environment::Image(image)) => of_image(all, &key, image),
            Some(
                Environment::Directory(_)
                | Environment::Requirements(_)
                | Environment::Pex(_)
                | Environment::Archive(_),
            ) => all.add(
                &key,
                "a packed environment applies to all roles".to_owned(),
                "set it at the top as `environment`; a role may have `system` or an image of its own",
            ),
        }
    }
}

fn of_image(all: &mut SpecIssues, key: &str, image: &Image) {
    let runtime = image.runtime;
    if let Some((message, hint)) = reference(&image.name) {
        all.add(&format!("{key}.{runtime}"), message, hint);
    }
    let mounts = format!("{key}.mounts");
    if image.mounts.len() > MOST_MOUNTS {
        let message = format!("{} mounts are more than {MOST_MOUNTS}", image.mounts.len());
        all.add(&mounts, message, "mount a directory above them");
    }
    let mut targets = BTreeSet::new();
    for mount in &image.mounts {
        if let Some((message, hint)) = mount.issue(runtime) {
            all.add(&mounts, message, hint);
        } else if !targets.insert(mount.to.trim_end_matches('/')) {
            let message = format!("two mounts have the same path `{}`", mount.to);
            all.add(&mounts, message, "give one of them another place in the image");
        }
    }
    let unknown = |all: &mut SpecIssues, name: &str, message: &str| {
        let hint = "leave it out, or use `docker`";
        all.add(&format!("{key}.{name}"), message.to_owned(), hint);
    };
    if runtime == Runtime::Runc {
        if image.network.is_some() {
            unknown(all, "network", "a runc container has the network that its node gives it");
        }
        if image.privileged {
            unknown(all, "privileged", "YARN runs no privileged runc containers");
        }
        if image.login.is_some() {
            unknown(all, "login", "runc's images lie in HDFS and need no login");
        }
        if image.keep {
            unknown(all, "keep", "YARN keeps no runc containers");
        }
    }
    if let Some(network) = &image.network {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let begins = network.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || network.len() > LONGEST_NETWORK || !network.chars().all(fits) {
            let message = format!("`{}` cannot be the name of a network", network.escape_debug());
            let hint = "such as `host`, `bridge`, or one that `docker network ls` shows";
            all.add(&format!("{key}.network"), message, hint);
        }
    }
}

/// Validates an image reference: `[registry[:port]/]name[:tag][@sha256:…]`.
fn reference(text: &str) -> Option<(String, &'static str)> {
    const FORM: &str = "write it as `registry.example.com:5000/team/image:tag`";
    if text.is_empty() {
        return Some(("the image has no name".to_owned(), FORM));
    }
    if text.len() > LONGEST_REFERENCE {
        return Some(("the image's name is too long".to_owned(), FORM));
    }
    if text.contains("://") {
        let message = format!("`{}` is an address, not the name of an image", shown(text));
        return Some((message, FORM));
    }
    let (named, digest) = match text.split_once('@') {
        None => (text, None),
        Some((named, digest)) => (named, Some(digest)),
    };
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        // A password before an `@` is not repeated.
        let message = "the image's name has an `@` that is not followed by `sha256:` and a digest";
        let hint = "credentials do not belong in a name: see `login`";
        return Some((message.to_owned(), hint));
    }
    let (path, tag) = match named.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (named, None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(tag) = tag {
        let fits = tag.starts_with(word) && tag.chars().all(|c| word(c) || ".-".contains(c));
        if tag.is_empty() {
            return Some(("the image's tag is empty".to_owned(), FORM));
        }
        if !fits || tag.len() > LONGEST_TAG {
            return Some((format!("`{}` cannot be a tag", shown(tag)), FORM));
        }
    }
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            (Some(first), rest)
        }
        _ => (None, path),
    };
    if let Some(registry) = registry {
        let (host, port) = registry.split_once(':').unwrap_or((registry, "443"));
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        if host.is_empty() || !host.chars().all(fits) || port.parse::<u16>().is_err() {
            let message = format!("`{}` cannot be a registry", shown(registry));
            return Some((message, FORM));
        }
    }
    for part in rest.split('/') {
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if part.is_empty() || !part.chars().all(fits) {
            let message = format!("`{}` cannot be the name of an image", shown(text));
            let hint = match part.chars().any(|c| c.is_ascii_uppercase()) {
                true => "such names have no capital letters",
                false => FORM,
            };
            return Some((message, hint));
        }
        if !end(part.chars().next()) || !end(part.chars().last()) {
            let message = format!("`{part}` in the image's name begins or ends with a sign");
            return Some((message, FORM));
        }
    }
    None
}

fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}
