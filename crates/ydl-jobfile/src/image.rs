//! Reading environments that are images: of a job, and of a role.

use super::{
    fields::{Map, Reader, truth},
    files::hdfs_url,
    tree::{Node, Value},
    units::Rejection,
};
use std::{fs, io};
use ydl_core::spec::{Environment, Image, Mount, Runtime};

/// Who runs images, and the key that says so.
const RUNTIMES: [(&str, Runtime); 2] = [("docker", Runtime::Docker), ("runc", Runtime::Runc)];
/// What is said of an image and of nothing else.
const OF_IMAGES: [&str; 5] = ["mounts", "network", "privileged", "login", "keep"];
/// What is said of what is packed and of nothing else.
const OF_PACKED: [&str; 2] = ["path", "interpreter"];

impl Reader {
    /// The image that the map speaks of, if it speaks of one.
    pub fn image(&mut self, node: &Node, map: &Map) -> Option<Environment> {
        let mut named =
            RUNTIMES.iter().filter_map(|(key, runtime)| Some((*key, *runtime, map.find(key)?)));
        let Some((key, runtime, name)) = named.next() else {
            for other in OF_IMAGES {
                if let Some(at) = map.find(other) {
                    let what = "there is no image it could be for";
                    let hint = "say which: `{docker: registry/image:tag, …}`";
                    self.reject(&at.at, &map.key(other), what, hint);
                }
            }
            return None;
        };
        if let Some((other, _, at)) = named.next() {
            let what = format!("it is an image for `{key}` already");
            self.reject(&at.at, &map.key(other), what, "leave one of them out");
        }
        for other in OF_PACKED {
            if let Some(at) = map.find(other) {
                let what = "in an image nothing is packed";
                let hint = format!("leave it out, or leave `{key}` out");
                self.reject(&at.at, &map.key(other), what, hint);
            }
        }
        let name = self.text_of(name, &map.key(key)).unwrap_or_default();
        let image = Image {
            mounts: self.mounts(map),
            network: self.text(map, "network"),
            privileged: self.value(map, "privileged", truth).unwrap_or(false),
            login: self.value(map, "login", login),
            keep: self.value(map, "keep", truth).unwrap_or(false),
            ..Image::new(runtime, name)
        };
        for (name, (what, hint)) in here(&image, key, self.cluster) {
            let at = map.find(name).map_or(&node.at, |found| &found.at);
            self.reject(at, &map.key(name), what, hint);
        }
        Some(Environment::Image(image))
    }

    fn mounts(&mut self, map: &Map) -> Vec<Mount> {
        let key = map.key("mounts");
        let cluster = self.cluster;
        let items = self.list(map, "mounts").iter();
        let read = |text: &str| {
            let mount = Mount::parse(text)?;
            // What is wrong with the path itself is said by the job's own check, and first.
            let odd = !mount.from.starts_with('/') || mount.from.split('/').any(|it| it == "..");
            match cluster || odd {
                true => Ok(mount),
                false => is_there(&mount.from).map(|()| mount),
            }
        };
        items.filter_map(|item| self.value_of(item, &key, read)).collect()
    }

    /// What a role's programs run in, if the role says so itself.
    pub fn role_environment(&mut self, map: &Map) -> Option<Environment> {
        let node = map.find("environment")?;
        let path = map.key("environment");
        if let Value::Map(_) = node.value {
            let inner = self.map(node, &path, "environment");
            let image = self.image(node, &inner);
            if image.is_none() && !self.reported.iter().any(|reported| reported.starts_with(&path))
            {
                let (what, hint) = not_for_a_role();
                self.reject(&node.at, &path, what, hint);
            }
            return image;
        }
        let cluster = self.cluster;
        self.value_of(node, &path, |text| match text {
            "system" => Ok(Environment::System),
            _ => named(text, cluster).unwrap_or_else(|| Err(not_for_a_role())),
        })
    }
}

fn not_for_a_role() -> Rejection {
    (
        "a role has `system` or an image of its own; what is packed is packed once, for all".into(),
        "say it at the top, or as `{docker: registry/image:tag}`".into(),
    )
}

/// An image in one word: `docker://registry/image:tag`.
pub fn named(text: &str, cluster: bool) -> Option<Result<Environment, Rejection>> {
    let (scheme, name) = text.split_once("://")?;
    let (key, runtime) = RUNTIMES.iter().find(|(key, _)| *key == scheme)?;
    let image = Image::new(*runtime, name);
    let refused = here(&image, key, cluster).into_iter().next();
    Some(match refused {
        Some((_, refusal)) => Err(refusal),
        None => Ok(Environment::Image(image)),
    })
}

/// What cannot be had where the job is to run, by the key that says it.
fn here(image: &Image, key: &'static str, cluster: bool) -> Vec<(&'static str, Rejection)> {
    let mut wrong = Vec::new();
    let mut add = |key, what: &str, hint: &str| wrong.push((key, (what.into(), hint.into())));
    if cluster {
        if image.has_digest() && image.runtime == Runtime::Docker {
            let what = "YARN's `container-executor` takes no image by its digest";
            add(key, what, "give it a tag, and name that");
        }
        if image.network.as_deref() == Some("none") {
            let what = "without a network an agent cannot reach its master";
            add("network", what, "leave it out, or choose another");
        }
        return wrong;
    }
    if image.runtime == Runtime::Runc {
        let what = "images for runc are run by a cluster, not on one machine";
        add(key, what, "use `docker` here, or `--cluster yarn`");
    }
    if image.keep {
        let what = "on one machine no container is kept";
        add("keep", what, "leave it out");
    }
    wrong
}

/// A registry's login, where nodes find it: in HDFS or on each of them.
fn login(text: &str) -> Result<String, Rejection> {
    let hint = "put what `docker login` wrote (`config.json`) there, and name it as `hdfs:///user/me/docker.json`";
    match text.split_once("://") {
        Some(("hdfs", _)) => hdfs_url(text),
        None if text.starts_with('/') => Ok(text.to_owned()),
        // A login itself must not be shown.
        _ => Err(("this is not the path of a file that nodes can read".into(), hint.into())),
    }
}

fn is_there(path: &str) -> Result<(), Rejection> {
    match fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((format!("`{path}` does not exist on this machine"), String::new()))
        }
        Err(error) => {
            let why = ydl_os::reason(&error);
            Err((format!("`{path}` cannot be looked at: {why}"), String::new()))
        }
    }
}
