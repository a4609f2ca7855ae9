//! Reading what only a cluster understands. One machine checks it, too, and otherwise has no use for it.

use super::{
    fields::{Map, Reader, choice, count},
    files::{absolute, hdfs_url},
    units::{Rejection, size_mib},
};
use std::{collections::BTreeMap, fs::File};
use ydl_core::spec::{ClusterOptions, GpuAssignment, Keytab, MasterSpec, Placement};
use ydl_os::reason;

/// What a ResourceManager takes.
const TAGS_MAX: usize = 10;
const TAG_LETTERS_MAX: usize = 100;

const GPU_ASSIGNMENTS: [(&str, GpuAssignment); 2] =
    [("cluster", GpuAssignment::Cluster), ("agent", GpuAssignment::Agent)];

impl Reader {
    pub fn on_cluster(&mut self, map: &Map, base: &str) -> ClusterOptions {
        let (viewers, modifiers) = self.acls(map);
        ClusterOptions {
            queue: self.value(map, "queue", word),
            node_label: self.value(map, "node_label", word),
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
            if text.is_empty() || !text.is_ascii() || text.len() > TAG_LETTERS_MAX {
                let what = format!("`{text}` cannot be a tag");
                let hint = format!("1 to {TAG_LETTERS_MAX} ASCII letters are possible");
                return Err((what, hint));
            }
            Ok(text.to_string())
        });
        if let (true, Some(node)) = (tags.len() > TAGS_MAX, map.find("tags")) {
            let what = format!("{} tags are too many; {TAGS_MAX} is the most", tags.len());
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
                let what = format!("a keytab needs its `{name}`");
                let hint = "write `keytab: {principal: me@EXAMPLE.COM, path: me.keytab}`";
                self.reject(&node.at, &map.key(name), what, hint);
            }
        }
        let principal = self.value(&map, "principal", word);
        let path = self.value(&map, "path", |path| {
            let whole = absolute(path, base);
            match File::open(&whole).and_then(|file| file.metadata()) {
                Ok(found) if found.is_dir() => {
                    Err((format!("`{path}` is a directory"), String::new()))
                }
                Ok(_) => Ok(whole),
                // One machine has no use for it.
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
            mib if mib < MEMORY_LEAST_MIB => Err((
                format!("`{text}` is too little for a master"),
                format!("{MEMORY_LEAST_MIB} MiB is the least"),
            )),
            mib => Ok(mib),
        };
        master.memory_mib = self.value(&map, "memory", memory).unwrap_or(master.memory_mib);
        master.vcores = self.value(&map, "vcores", at_least_one).unwrap_or(master.vcores);
        master.node_label = self.value(&map, "node_label", word);
        master.attempts = self.value(&map, "attempts", at_least_one).unwrap_or(master.attempts);
        master
    }

    /// Where the tasks of a role go.
    pub fn placement(&mut self, role: &Map) -> Placement {
        let mut placement =
            Placement { node_label: self.value(role, "node_label", word), ..Placement::default() };
        let Some(node) = role.find("placement") else {
            return placement;
        };
        let map = self.map(node, &role.key("placement"), "roles.*.placement");
        placement.max_per_node = self.value(&map, "max_per_node", at_least_one);
        placement.nodes = self.texts(&map, "nodes", word);
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
            if let Some(value) = self.value_of(value, &own, word) {
                attributes.insert(name.name.clone(), value);
            }
        }
        attributes
    }
}

/// What the master's own threads and buffers need at the very least.
const MEMORY_LEAST_MIB: u64 = 32;

/// A name without blanks, as queues, labels, hosts and principals have.
fn word(text: &str) -> Result<String, Rejection> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err((format!("`{text}` is not a name"), String::new()));
    }
    Ok(text.to_string())
}

fn rack(text: &str) -> Result<String, Rejection> {
    if !text.starts_with('/') {
        let hint = format!("racks begin with `/`: write `/{text}`");
        return Err((format!("`{text}` is not a rack"), hint));
    }
    word(text)
}

fn at_least_one(text: &str) -> Result<u32, Rejection> {
    match count(text)? {
        0 => Err(("0 is too few".into(), "1 is the least".into())),
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

/// `user1,user2 group1,group2`, or `*`: users, a blank, groups.
fn acl(text: &str) -> Result<String, Rejection> {
    if text.trim() == "*" {
        return Ok("*".into());
    }
    let parts = text.trim_end().split(' ').count();
    if parts > 2 || text.contains(['\n', '\t']) {
        let hint = "write users, one blank, groups: `alice,bob ml-team`; or `*` for everybody";
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
            let what = format!("`{text}` is not a whole path");
            return Err((what, "write it as `/user/me/staging` or `hdfs://…`".into()));
        }
    };
    Ok(whole.trim_end_matches('/').to_string())
}

/// A directory on every node, or in HDFS.
fn checkpoint(text: &str) -> Result<String, Rejection> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        _ if text.trim_matches('/').is_empty() => Err((
            "there is no directory of that name".to_owned(),
            "write `/shared/{job}`, or `hdfs:///user/me/checkpoints`".to_owned(),
        )),
        None | Some("hdfs" | "file") => Ok(text.to_owned()),
        Some(other) => Err((
            format!("`{other}://` is no place for checkpoints"),
            "a path that all nodes share, or `hdfs://…`".to_owned(),
        )),
    }
}

/// The name of an interface, or a range of addresses.
fn network(text: &str) -> Result<String, Rejection> {
    let range = text.split_once('/').map(|(first, bits)| {
        let bits = bits.parse::<u8>().is_ok_and(|bits| bits <= 32);
        bits && first.parse::<std::net::Ipv4Addr>().is_ok()
    });
    // Linux takes no longer names.
    let name = !text.is_empty() && text.len() < 16 && !text.contains(char::is_whitespace);
    match range.unwrap_or(name) {
        true => Ok(text.to_owned()),
        false => Err((
            format!("`{text}` is neither an interface nor a range of addresses"),
            "write `eth1`, or `10.1.0.0/16`".to_owned(),
        )),
    }
}
