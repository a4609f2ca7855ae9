//! Files that a NodeManager fetches before it starts a container.

use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    LocalResourceProto, LocalResourceTypeProto, LocalResourceVisibilityProto, UrlProto,
};
use crate::types::named::named;

/// Where a file is, as in `hdfs://namenode:8020/user/alice/train.py`. The path is written as Hadoop
/// writes paths: a blank is a blank, and a percent sign stands for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The file system, as `hdfs`; empty for the cluster's default.
    pub scheme: String,
    /// A host or the name of a group of NameNodes; empty where there is none.
    pub host: String,
    /// The port, if the address has one.
    pub port: Option<u16>,
    /// The path from the root.
    pub path: String,
    /// What stands before an `@`, as a container in `abfs://container@account/path`.
    pub user: Option<String>,
}

/// A text that is no place of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no location of a file; it is written `hdfs://host:port/path` or `/path`")]
pub struct BadLocation(String);

impl FromStr for Location {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        let bad = || BadLocation(text.chars().take(200).collect());
        let (scheme, rest) = match text.split_once(":/") {
            Some((scheme, _)) if scheme.bytes().all(in_scheme) => {
                (scheme, &text[scheme.len() + 1..])
            }
            _ => ("", text),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').ok_or_else(bad)?),
            None => ("", rest),
        };
        if !path.starts_with('/') || text.contains('\0') {
            return Err(bad());
        }
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user.to_owned()), address),
            None => (None, authority),
        };
        // The colons of a bracketed address are not before a port.
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| bad())?))
            }
            _ => (address, None),
        };
        Ok(Self {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            user,
        })
    }
}

fn in_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if !self.host.is_empty() || !self.scheme.is_empty() {
            f.write_str("//")?;
        }
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)
    }
}

impl Location {
    fn proto(&self) -> UrlProto {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        UrlProto {
            scheme: given(&self.scheme),
            host: given(&self.host),
            // Left out it would be read as 0, and the file looked for at `host:0`.
            port: Some(self.port.map_or(-1, i32::from)),
            file: Some(self.path.clone()),
            user_info: self.user.clone(),
        }
    }
}

/// What becomes of a file when it has been fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalResourceKind {
    /// It stays as it is.
    #[default]
    File,
    /// It is unpacked into a directory: `.jar`, `.zip`, `.tar`, `.tar.gz` and `.tgz` are known.
    Archive,
    /// It stays as it is, and what of it matches a regular expression is unpacked.
    Pattern(String),
}

named! {
    /// Who else may use a file that a node has fetched.
    #[derive(Default)]
    pub enum Visibility: LocalResourceVisibilityProto, "visibility" {
        /// Everybody: the file must be readable by everybody where it is.
        Public = Public "PUBLIC",
        /// All applications of the same user.
        Private = Private "PRIVATE",
        /// This application only.
        #[default]
        Application = Application "APPLICATION",
    }
}

/// A file that a NodeManager fetches before it starts a container, and links into its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResource {
    /// Where it is.
    pub location: Location,
    /// How long it is; for people.
    pub bytes: u64,
    /// When it was changed, in milliseconds, exactly as its file system says: the NodeManager
    /// refuses a file that has been changed since.
    pub modified: i64,
    /// What becomes of it.
    pub kind: LocalResourceKind,
    /// Who else may use it.
    pub visibility: Visibility,
}

impl LocalResource {
    pub(crate) fn proto(&self) -> LocalResourceProto {
        let (kind, pattern) = match &self.kind {
            LocalResourceKind::File => (LocalResourceTypeProto::File, None),
            LocalResourceKind::Archive => (LocalResourceTypeProto::Archive, None),
            LocalResourceKind::Pattern(pattern) => {
                (LocalResourceTypeProto::Pattern, Some(pattern.clone()))
            }
        };
        LocalResourceProto {
            resource: Some(self.location.proto()),
            size: Some(self.bytes.try_into().unwrap_or(i64::MAX)),
            timestamp: Some(self.modified),
            r#type: Some(kind.into()),
            visibility: Some(self.visibility.proto().into()),
            pattern,
            should_be_uploaded_to_shared_cache: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_they_are_written() {
        for text in [
            "hdfs://namenode:8020/user/a b/c%20d#e",
            "hdfs://ns/x",
            "hdfs:///x",
            "file:///tmp/x",
            "abfs://box@account/x",
            "hdfs://[::1]:8020/x",
            "hdfs://[::1]/x",
            "/x/y:z",
        ] {
            let location: Location = text.parse().expect(text);
            assert_eq!(location.to_string(), text);
        }
        let short: Location = "file:/tmp/x".parse().expect("Hadoop's short form");
        assert_eq!(short.to_string(), "file:///tmp/x");
        for bad in
            ["", "x", "hdfs://", "hdfs://host", "hdfs://host:x/y", "hdfs://h:70000/y", "/a\0b"]
        {
            assert!(bad.parse::<Location>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_location_without_port_says_so() {
        let location: Location = "hdfs://ns/x".parse().expect("a location");
        assert_eq!(location.proto().port, Some(-1));
        let local: Location = "file:///x".parse().expect("a location");
        assert_eq!(local.proto().host, None);
    }
}
