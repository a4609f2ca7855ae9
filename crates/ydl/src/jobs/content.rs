//! What of a job lies in HDFS, as a NodeManager wants it described.

use super::dir::Content;
use crate::report::Report;
use yarn_native::types::{LocalResource, LocalResourceKind, Visibility};

impl Content {
    /// For a container's launch.
    pub fn resource(&self) -> Result<LocalResource, Report> {
        let location = self.url.parse();
        Ok(LocalResource {
            location: location.map_err(|error| Report::trouble(format!("{error}")))?,
            bytes: self.bytes,
            modified: i64::try_from(self.modified_ms).unwrap_or(i64::MAX),
            kind: match self.unpack {
                true => LocalResourceKind::Archive,
                false => LocalResourceKind::File,
            },
            visibility: match self.own {
                true => Visibility::Application,
                false => Visibility::Private,
            },
        })
    }
}
