//! Files that a NodeManager downloads before it starts a container.

use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    LocalResourceProto, LocalResourceTypeProto, LocalResourceVisibilityProto, UrlProto,
};
use crate::types::named::named;

/// Location of a file, as in `hdfs://namenode:8020/user/alice/train.py`. Paths are unescaped as in
/// Hadoop: blanks and percent signs stand for themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// File system scheme, such as `hdfs`; empty for the cluster's default.
    pub scheme: String,
    /// Host or nameservice; empty if there is none.
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// Absolute path.
    pub path: String,
    /// User info before `@`, such as the container in `abfs://container@account/path`.
    pub user: Option<String>,
}

/// Error for a malformed file location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid file location `{0}`: expected `hdfs://host:port/path` or `/path`")]
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
        // The colons inside brackets do not precede a port.
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
            // A missing port would be read as 0.
            port: Some(self.port.map_or(-1, i32::from)),
            file: Some(self.path.clone()),
            user_info: self.user.clone(),
        }
    }
}

/// Treatment of a downloaded file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalResourceKind {
    /// Kept as is.
    #[default]
    File,
    /// Unpacked into a directory: `.jar`, `.zip`, `.tar`, `.tar.gz` or `.tgz`.
    Archive,
    /// Kept as is; entries that match this regular expression are unpacked, too.
    Pattern(String),
}

named! {
    /// Sharing of a downloaded file on its node.
    #[derive(Default)]
    pub enum Visibility: LocalResourceVisibilityProto, "visibility" {
        /// Shared by all users. The source file must be world-readable.
        Public = Public "PUBLIC",
        /// Shared by all applications of the user.
        Private = Private "PRIVATE",
        /// Private to the application.
        #[default]
        Application = Application "APPLICATION",
    }
}

/// File that a NodeManager downloads and links into the container's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResource {
    /// Location.
    pub location: Location,
    /// Size in bytes; informational.
    pub bytes: u64,
    /// Modification time in milliseconds, exactly as its file system reports it. The NodeManager
    /// rejects a file that has changed since.
    pub modified: i64,
    /// Treatment after the download.
    pub kind: LocalResourceKind,
    /// Sharing on the node.
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
    fn locations_round_trip() {
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
    fn missing_port_is_encoded_as_minus_one() {
        let location: Location = "hdfs://ns/x".parse().expect("a location");
        assert_eq!(location.proto().port, Some(-1));
        let local: Location = "file:///x".parse().expect("a location");
        assert_eq!(local.proto().host, None);
    }
}
