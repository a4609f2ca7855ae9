//! Reads keys that apply on a cluster. They are checked on one machine too, and otherwise ignored there.

use super::{
    fields::{Map, Reader},
    files::{absolute, hdfs_url},
    formats::{Choice, Context, Describe, Format, List, NAME, SIZE, Scalar, text_of},
    keys::KEYTAB,
    printer::YamlValue,
    tree::Node,
    units::{Rejection, size_mib},
};
use std::fs::File;
use ydl_core::{
    JobSpecBuilder,
    spec::{GpuAssignment, Keytab},
};
use ydl_os::reason;

/// Limits of the ResourceManager.
const TAGS_MAX: usize = 10;
const TAG_CHARS_MAX: usize = 100;
/// Minimum memory for the threads and buffers of the master.
const MEMORY_MIN_MIB: u64 = 32;

/// Component that assigns GPUs.
pub(crate) const GPU_ASSIGNMENT: Choice<GpuAssignment> =
    Choice(&[("cluster", GpuAssignment::Cluster), ("agent", GpuAssignment::Agent)]);
/// Name of a rack.
pub(crate) const RACK: Scalar<String> = text_of("rack", rack);
/// Access control list.
pub(crate) const ACL: Scalar<String> =
    text_of("users, a space, groups; or `*`", |text, _| acl(text));
/// File system that issues tokens.
pub(crate) const FILE_SYSTEM: Scalar<String> =
    text_of("`hdfs://…` or `viewfs://…`", |text, _| file_system(text));
/// Staging directory.
pub(crate) const STAGING: Scalar<String> = text_of("path in HDFS", |text, _| staging(text));
/// Directory of checkpoints.
pub(crate) const CHECKPOINT: Scalar<String> =
    Scalar { python: "PathLike", ..text_of("path, or `hdfs://…`", |text, _| checkpoint(text)) };
/// Network between tasks.
pub(crate) const NETWORK: Scalar<String> =
    text_of("interface, or address range", |text, _| network(text));
/// Keytab on the submitting machine.
pub(crate) const KEYTAB_FILE: Scalar<String> = text_of("path", keytab_file);

/// Priority in a queue.
pub(crate) const PRIORITY: Scalar<i32> = Scalar {
    kind: "number",
    python: "int",
    parse: |text, _| priority(text),
    print: i32::to_string,
};

/// Memory of the master.
pub(crate) const MASTER_MEMORY: Scalar<u64> = Scalar {
    parse: |text, _| match size_mib(text)? {
        mib if mib < MEMORY_MIN_MIB => Err((
            format!("`{text}` is below the minimum for a master"),
            format!("the minimum is {MEMORY_MIN_MIB} MiB"),
        )),
        mib => Ok(mib),
    },
    ..SIZE
};

/// Tags of the application.
pub(crate) struct Tags;

const TAG_LIST: List<String> =
    List { kind: "list of texts", item: text_of("tag", |text, _| tag(text)) };

impl Describe for Tags {
    fn kind(&self) -> String {
        TAG_LIST.kind()
    }

    fn python(&self) -> String {
        TAG_LIST.python()
    }
}

impl Format<Vec<String>> for Tags {
    fn read(&self, reader: &mut Reader, node: &Node, path: &str, value: &mut Vec<String>) {
        TAG_LIST.read(reader, node, path, value);
        if value.len() > TAGS_MAX {
            let what = format!("{} tags exceed the maximum of {TAGS_MAX}", value.len());
            reader.reject(&node.at, path, what, "");
        }
    }

    fn print(&self, tags: &Vec<String>) -> YamlValue {
        TAG_LIST.print(tags)
    }
}

impl Reader {
    pub(crate) fn keytab(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find("keytab") else {
            return;
        };
        let map = self.map(node, "keytab", KEYTAB.path());
        for name in ["principal", "path"] {
            if map.find(name).is_none() && !self.reported.contains(&map.key(name)) {
                let what = format!("the keytab has no `{name}`");
                let hint = "write `keytab: {principal: me@EXAMPLE.COM, path: me.keytab}`";
                self.reject(&node.at, &map.key(name), what, hint);
            }
        }
        let mut keytab = Keytab { principal: String::new(), path: String::new() };
        self.section(&map, &KEYTAB, &mut keytab);
        job.cluster_options.keytab = Some(keytab);
    }
}

fn keytab_file(path: &str, context: &Context) -> Result<String, Rejection> {
    let file = absolute(path, &context.base);
    match File::open(&file).and_then(|opened| opened.metadata()) {
        Ok(found) if found.is_dir() => Err((format!("`{path}` is a directory"), String::new())),
        Ok(_) => Ok(file),
        // Unused on one machine.
        Err(_) if !context.cluster => Ok(file),
        Err(error) => Err((format!("`{path}` cannot be read: {}", reason(&error)), String::new())),
    }
}

fn tag(text: &str) -> Result<String, Rejection> {
    if text.is_empty() || !text.is_ascii() || text.len() > TAG_CHARS_MAX {
        let what = format!("`{text}` is not a valid tag");
        return Err((what, format!("tags have 1 to {TAG_CHARS_MAX} ASCII characters")));
    }
    Ok(text.to_string())
}

fn rack(text: &str, context: &Context) -> Result<String, Rejection> {
    if !text.starts_with('/') {
        let hint = format!("racks begin with `/`: write `/{text}`");
        return Err((format!("`{text}` is not a rack"), hint));
    }
    (NAME.parse)(text, context)
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

/// Parses the root of a file system. Only a secure cluster needs to know it, so its scheme is checked at submit.
fn file_system(text: &str) -> Result<String, Rejection> {
    let rejection = (
        format!("`{text}` is not a file system"),
        "write it as `hdfs://namenode:8020`, `hdfs://nameservice` or `viewfs://name`".to_owned(),
    );
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(rejection);
    };
    let name = rest.trim_end_matches('/');
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c));
    // `viewfs:///` has a default mount table.
    let is_name = (!name.is_empty() || scheme == "viewfs") && !name.contains('/');
    match is_scheme && is_name {
        true => Ok(format!("{scheme}://{name}")),
        false => Err(rejection),
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
