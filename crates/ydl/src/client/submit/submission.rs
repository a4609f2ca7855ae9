//! Builds the submission context that starts a job's master.

use super::credentials::SubmitCredentials;
use crate::backend::yarn::local_resource;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{collections::BTreeMap, time::Duration};
use yarn_native::{
    client::Submission,
    credentials::Format,
    types::{Access, ApplicationId, LaunchContext, Resource},
};
use ydl_core::JobSpec;
use ydl_os::report::Report;
use ydl_proto::files::{StagedFile, StagedFiles};

/// Application type of all jobs.
pub(crate) const APPLICATION_TYPE: &str = "YDL";
/// Command of the master's container. The node replaces `<LOG_DIR>`, and reports the end of the file with `stderr` in its
/// name if the container fails.
const COMMAND: &str = "exec ./ydl master 1><LOG_DIR>/master.stdout 2><LOG_DIR>/master.stderr";
/// Time after which a failure of the master does not count towards its attempts any more.
const FAILURE_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Default queue.
const QUEUE: &str = "default";
/// Prefix of the tag with the job's staging directory, if it is not in its owner's home directory.
const STAGING_TAG: &str = "ydl-staging:";
/// Prefix of the tag with the job's number of tasks. A ResourceManager does not report the containers of a finished job.
const TASKS_TAG: &str = "ydl-tasks:";
/// Bytes that are percent-encoded in the staging tag. ResourceManagers convert tags to lower case, so upper-case letters
/// are encoded too.
const STAGING_ENCODED: &AsciiSet = &{
    let mut set = NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b':');
    let mut letter = b'A';
    while letter <= b'Z' {
        set = set.add(letter);
        letter += 1;
    }
    set
};
/// Limits of a ResourceManager on the number and the length of tags.
const TAGS_MAX: usize = 10;
const TAG_BYTES_MAX: usize = 100;

/// Builds the submission context of a job. `own` are files of the job's directory, by their names in containers.
pub(crate) fn submission(
    id: ApplicationId,
    spec: &JobSpec,
    staged: &StagedFiles,
    own: &BTreeMap<String, StagedFile>,
    submit_credentials: &SubmitCredentials,
    user: Option<&str>,
) -> Result<Submission, Report> {
    let on = &spec.cluster_options;
    let mut launch = LaunchContext::command(COMMAND);
    launch.resources.insert("ydl".into(), local_resource(&staged.binary)?);
    for (name, content) in own {
        launch.resources.insert(name.clone(), local_resource(content)?);
    }
    // An insecure cluster does not authenticate, and containers may run as another user.
    if let Some(user) = user {
        launch.environment.insert("HADOOP_USER_NAME".into(), user.to_owned());
    }
    let credentials = submit_credentials.credentials.to_bytes(Format::Writable).to_vec();
    launch.credentials = Some(credentials.into());
    launch.credentials_conf = submit_credentials.renewal.clone();
    for (access, list) in [(Access::View, &on.viewers), (Access::Modify, &on.modifiers)] {
        if let Some(list) = list {
            launch.access.insert(access, list.clone());
        }
    }
    let mut tags = on.tags.clone();
    tags.extend(on.staging.as_deref().map(staging_tag).transpose()?);
    // Without this tag `ydl ls` lacks a number; with too many tags the job would be rejected.
    if tags.len() < TAGS_MAX {
        tags.push(format!("{TASKS_TAG}{}", spec.task_count()));
    }
    let mib = i64::try_from(on.master.memory_mib).unwrap_or(i64::MAX);
    let vcores = i32::try_from(on.master.vcores).unwrap_or(i32::MAX);
    Ok(Submission {
        kind: APPLICATION_TYPE.into(),
        queue: on.queue.clone().unwrap_or_else(|| QUEUE.into()),
        priority: on.priority,
        tags,
        resource: Resource::new(mib, vcores),
        launch,
        label: on.node_label.clone(),
        master_label: on.master.node_label.clone(),
        attempts_max: Some(on.master.attempts),
        failure_window: Some(FAILURE_WINDOW),
        keep_containers: true,
        ..Submission::new(id, spec.name.clone())
    })
}

/// Returns the tag that records a staging directory.
fn staging_tag(staging: &str) -> Result<String, Report> {
    let path = utf8_percent_encode(staging, STAGING_ENCODED).to_string();
    let tag = format!("{STAGING_TAG}{}", path.to_ascii_lowercase());
    if tag.len() > TAG_BYTES_MAX {
        let what = format!("the path `{staging}` of `staging` is too long for the cluster");
        return Err(Report::bad_input(what).hint("name a directory with a shorter path"));
    }
    Ok(tag)
}

/// Returns the job's number of tasks, if a tag records it.
pub(crate) fn tasks_in(tags: &[String]) -> Option<u64> {
    let mut counts = tags.iter().filter_map(|tag| tag.strip_prefix(TASKS_TAG));
    counts.next()?.parse().ok()
}

/// Returns the staging directory recorded by [`staging_tag`], if a tag records one.
pub(crate) fn staging_in(tags: &[String]) -> Option<String> {
    let tag = tags.iter().find(|tag| tag.starts_with(STAGING_TAG))?;
    let path = percent_decode_str(tag.strip_prefix(STAGING_TAG)?).decode_utf8().ok()?;
    // A tag that encodes to something else is not one of ydl's.
    (staging_tag(&path).ok().as_ref() == Some(tag)).then(|| path.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_count_round_trips_as_a_tag() {
        let tags = |all: &[&str]| all.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert_eq!(tasks_in(&tags(&["nightly", "ydl-tasks:4"])), Some(4));
        assert_eq!(tasks_in(&tags(&["ydl-tasks:many"])), None);
        assert_eq!(tasks_in(&tags(&["nightly"])), None);
    }

    #[test]
    fn the_staging_directory_round_trips_as_a_tag() {
        for path in ["/data/Stage", "hdfs://nn:8020/a,b c/ü", "/a%41/-_.~Z"] {
            let tag = staging_tag(path).unwrap();
            assert_eq!(tag, tag.to_lowercase());
            assert_eq!(staging_in(&["x".into(), tag]).as_deref(), Some(path));
        }
        assert_eq!(staging_tag("/A b").unwrap(), "ydl-staging:/%41%20b");
        assert!(staging_tag(&"/long".repeat(30)).is_err());
        assert_eq!(staging_in(&["ydl-staging:%f".into()]), None);
    }
}
