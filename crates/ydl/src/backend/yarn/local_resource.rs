//! Describes a job's files in HDFS as NodeManager local resources.

use yarn_native::types::{LocalResource, LocalResourceKind, Visibility};
use ydl_os::report::Report;
use ydl_proto::files::StagedFile;

/// A file of a job for a container's launch.
pub fn local_resource(content: &StagedFile) -> Result<LocalResource, Report> {
    let location = content.url.parse();
    Ok(LocalResource {
        location: location.map_err(|error| Report::internal(format!("{error}")))?,
        bytes: content.bytes,
        modified: i64::try_from(content.modified_ms).unwrap_or(i64::MAX),
        kind: match content.unpack {
            true => LocalResourceKind::Archive,
            false => LocalResourceKind::File,
        },
        visibility: match content.own {
            true => Visibility::Application,
            false => Visibility::Private,
        },
    })
}
