//! Reads keys that apply on a cluster. They are checked on one machine too, and otherwise ignored there.

use super::{
    fields::{Map, Reader, choice, count},
    files::{absolute, hdfs_url},
    units::{Rejection, size_mib},
};
use std::{collections::BTreeMap, fs::File};
use ydl_core::spec::{ClusterOptions, GpuAssignment, Keytab, MasterSpec, Placement};
use ydl_os::reason;

/// Limits of the ResourceManager.
const TAGS_MAX: usize = 10;
const TAG_CHARS_MAX: usize = 100;

const GPU_ASSIGNMENTS: [(&str, GpuAssignment); 2] =
    [("cluster", GpuAssignment::Cluster), ("agent", GpuAssignment::Agent)];

impl Reader {
    pub fn on_cluster(&mut self, map: &Map, base: &str) -> ClusterOptions {
        let (viewers, modifiers) = self.acls(map);
        ClusterOptions {
            queue: self.value(map, "queue", name),
            node_label: self.value(map, "node_label", name),
            gpu_assignment: self
                .value(map, "gpu_assignment", choice(&GPU_ASSIGNMENTS))
                .unwrap_or_default(),
            tags: self.tags(map),
            priority: self.value(map, "priority", priority),
            viewers,
            modifiers,
            file_systems: self.texts(map, "file_systems", file_system),
            staging: self.value(map, "staging", staging),
            keytab: self.keytab(map, base),
            network: self.value(map, "network", network),
            checkpoint: self.value(map, "checkpoint", checkpoint),
            mlflow: self.mlflow(map, base),
            master: self.master(map),
        }
    }

    fn texts(
        &mut self,
        map: &Map,
        name: &str,
        read: impl Fn(&str) -> Result<String, Rejection>,
    ) -> Vec<String> {
        let path = map.key(name);
        let items = self.list(map, name).iter();
        items.filter_map(|item| self.value_of(item, &path, &read)).collect()
    }

    fn tags(&mut self, map: &Map) -> Vec<String> {
        let tags = self.texts(map, "tags", |text| {
            if text.is_empty() || !text.is_ascii() || text.len() > TAG_CHARS_MAX {
                let what = format!("`{text}` is not a valid tag");
                let hint = format!("tags have 1 to {TAG_CHARS_MAX} ASCII characters");
                return Err((what, hint));
            }
            Ok(text.to_string())
        });
        if let (true, Some(node)) = (tags.len() > TAGS_MAX, map.find("tags")) {
            let what = format!("{} tags exceed the maximum of {TAGS_MAX}", tags.len());
            self.reject(&node.at, "tags", what, "");
        }
        tags
    }

    fn acls(&mut self, map: &Map) -> (Option<String>, Option<String>) {
        let Some(node) = map.find("acls") else {
            return (None, None);
        };
        let map = self.map(node, "acls", "acls");
        (self.value(&map, "view", acl), self.value(&map, "modify", acl))
    }

    fn keytab(&mut self, map: &Map, base: &str) -> Option<Keytab> {
        let node = map.find("keytab")?;
        let cluster = self.cluster;
        let map = self.map(node, "keytab", "keytab");
        for name in ["principal", "path"] {
            if map.find(name).is_none() && !self.reported.contains(&map.key(name)) {
                let what = format!("the keytab has no `{name}`");
                let hint = "write `keytab: {principal: me@EXAMPLE.COM, path: me.keytab}`";
                self.reject(&node.at, &map.key(name), what, hint);
            }
        }
        let principal = self.value(&map, "principal", name);
        let path = self.value(&map, "path", |path| {
            let whole = absolute(path, base);
            match File::open(&whole).and_then(|file| file.metadata()) {
                Ok(found) if found.is_dir() => {
                    Err((format!("`{path}` is a directory"), String::new()))
                }
                Ok(_) => Ok(whole),
                // Unused on one machine.
                Err(_) if !cluster => Ok(whole),
                Err(error) => {
                    Err((format!("`{path}` cannot be read: {}", reason(&error)), String::new()))
                }
            }
        });
        Some(Keytab { principal: principal?, path: path? })
    }

    fn master(&mut self, map: &Map) -> MasterSpec {
        let mut master = MasterSpec::default();
        let Some(node) = map.find("master") else {
            return master;
        };
        let map = self.map(node, "master", "master");
        let memory = |text: &str| match size_mib(text)? {
            mib if mib < MEMORY_MIN_MIB => Err((
                format!("`{text}` is below the minimum for a master"),
                format!("the minimum is {MEMORY_MIN_MIB} MiB"),
            )),
            mib => Ok(mib),
        };
        master.memory_mib = self.value(&map, "memory", memory).unwrap_or(master.memory_mib);
        master.vcores = self.value(&map, "vcores", at_least_one).unwrap_or(master.vcores);
        master.node_label = self.value(&map, "node_label", name);
        master.attempts = self.value(&map, "attempts", at_least_one).unwrap_or(master.attempts);
        master
    }

    /// Reads the placement of a role.
    pub fn placement(&mut self, role: &Map) -> Placement {
        let mut placement =
            Placement { node_label: self.value(role, "node_label", name), ..Placement::default() };
        let Some(node) = role.find("placement") else {
            return placement;
        };
        let map = self.map(node, &role.key("placement"), "roles.*.placement");
        placement.max_per_node = self.value(&map, "max_per_node", at_least_one);
        placement.nodes = self.texts(&map, "nodes", name);
        placement.racks = self.texts(&map, "racks", rack);
        placement.attributes = self.attributes(&map);
        placement
    }

    fn attributes(&mut self, map: &Map) -> BTreeMap<String, String> {
        let Some(node) = map.find("attributes") else {
            return BTreeMap::new();
        };
        let path = map.key("attributes");
        let mut attributes = BTreeMap::new();
        for (name, value) in self.entries(node, &path) {
            let own = format!("{path}.{}", name.name);
            if let Some(value) = self.value_of(value, &own, self::name) {
                attributes.insert(name.name.clone(), value);
            }
        }
        attributes
    }
}

/// Minimum memory for the threads and buffers of the master.
const MEMORY_MIN_MIB: u64 = 32;

/// Parses a name without spaces, such as that of a queue, label, host or principal.
fn name(text: &str) -> Result<String, Rejection> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err((format!("`{text}` is not a valid name"), String::new()));
    }
    Ok(text.to_string())
}

fn rack(text: &str) -> Result<String, Rejection> {
    if !text.starts_with('/') {
        let hint = format!("racks begin with `/`: write `/{text}`");
        return Err((format!("`{text}` is not a rack"), hint));
    }
    name(text)
}

fn at_least_one(text: &str) -> Result<u32, Rejection> {
    match count(text)? {
        0 => Err(("0 is below the minimum".into(), "the minimum is 1".into())),
        n => Ok(n),
    }
}

fn priority(text: &str) -> Result<i32, Rejection> {
    text.parse().map_err(|_| {
        (
            format!("`{text}` is not a priority"),
            "write a whole number; the highest goes first".into(),
        )
    })
}

/// Parses an access control list: `user1,user2 group1,group2`, or `*`.
fn acl(text: &str) -> Result<String, Rejection> {
    if text.trim() == "*" {
        return Ok("*".into());
    }
    let parts = text.trim_end().split(' ').count();
    if parts > 2 || text.contains(['\n', '\t']) {
        let hint = "write users, a space, groups: `alice,bob ml-team`; or `*` for all users";
        return Err((format!("`{text}` is not a list of users"), hint.into()));
    }
    Ok(text.to_string())
}

fn file_system(text: &str) -> Result<String, Rejection> {
    let name = text.strip_prefix("hdfs://").map(|rest| rest.trim_end_matches('/'));
    match name {
        Some(name) if !name.is_empty() && !name.contains('/') => Ok(format!("hdfs://{name}")),
        _ => Err((
            format!("`{text}` is not a file system"),
            "write it as `hdfs://namenode:8020` or `hdfs://nameservice`".into(),
        )),
    }
}

fn staging(text: &str) -> Result<String, Rejection> {
    let whole = match text.contains("://") {
        true => hdfs_url(text)?,
        false if text.starts_with('/') => {
            hdfs_url(&format!("hdfs://{text}")).map(|_| text.into())?
        }
        false => {
            let what = format!("`{text}` is not an absolute path");
            return Err((what, "write it as `/user/me/staging` or `hdfs://…`".into()));
        }
    };
    Ok(whole.trim_end_matches('/').to_string())
}

/// Parses a directory on shared storage or in HDFS.
fn checkpoint(text: &str) -> Result<String, Rejection> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        _ if text.trim_matches('/').is_empty() => Err((
            "the directory name is empty".to_owned(),
            "write `/shared/{job}`, or `hdfs:///user/me/checkpoints`".to_owned(),
        )),
        None | Some("hdfs" | "file") => Ok(text.to_owned()),
        Some(other) => Err((
            format!("checkpoints at `{other}://` are not supported"),
            "use a path on shared storage, or `hdfs://…`".to_owned(),
        )),
    }
}

/// Parses the name of an interface, or an address range.
fn network(text: &str) -> Result<String, Rejection> {
    let range = text.split_once('/').map(|(first, bits)| {
        let bits = bits.parse::<u8>().is_ok_and(|bits| bits <= 32);
        bits && first.parse::<std::net::Ipv4Addr>().is_ok()
    });
    // The length limit of Linux.
    let name = !text.is_empty() && text.len() < 16 && !text.contains(char::is_whitespace);
    match range.unwrap_or(name) {
        true => Ok(text.to_owned()),
        false => Err((
            format!("`{text}` is neither an interface nor an address range"),
            "write `eth1`, or `10.1.0.0/16`".to_owned(),
        )),
    }
}
