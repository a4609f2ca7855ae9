//! Builds the submission context that starts a job's master.

use super::credentials::SubmitCredentials;
use crate::backend::yarn::local_resource;
use std::{collections::BTreeMap, time::Duration};
use yarn_native::{
    client::Submission,
    credentials::Format,
    types::{Access, ApplicationId, LaunchContext, Resource},
};
use ydl_core::JobSpec;
use ydl_os::report::Report;
use ydl_proto::files::{StagedFile, StagedFiles};

/// The type that all jobs have among the applications of a cluster.
pub const APPLICATION_TYPE: &str = "YDL";
/// Command of the master's container. `<LOG_DIR>` is put in by its node. Of a container that fails, nodes tell the end
/// of the file whose name has `stderr` in it.
const COMMAND: &str = "exec ./ydl master 1><LOG_DIR>/master.stdout 2><LOG_DIR>/master.stderr";
/// A master that failed longer ago than this has lived; its failure does not count towards the last.
const FAILURE_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Default queue.
const QUEUE: &str = "default";
/// Begins the tag that says where a job is staged, if not in its owner's home directory.
const STAGING_TAG: &str = "ydl-staging:";
/// Begins the tag that says how many tasks a job has: of one that is over, a ResourceManager knows no containers.
const TASKS_TAG: &str = "ydl-tasks:";
/// Limits of a ResourceManager.
const TAGS_MAX: usize = 10;
const TAG_BYTES_MAX: usize = 100;

/// The application that is the job. `own` are files of its own directory, by the names they have in containers.
pub fn submission(
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
    // A list that shows one number less is better than a job that is refused.
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

/// Tags become lower case, so that everything else is written as its number.
fn staging_tag(staging: &str) -> Result<String, Report> {
    let mut tag = STAGING_TAG.to_owned();
    for byte in staging.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b':' => tag.push(byte.into()),
            _ => tag += &format!("%{byte:02x}"),
        }
    }
    if tag.len() > TAG_BYTES_MAX {
        let what = format!("the path `{staging}` of `staging` is too long for the cluster");
        return Err(Report::bad_input(what).hint("name a directory with a shorter path"));
    }
    Ok(tag)
}

/// Returns the job's number of tasks, if a tag records it.
pub fn tasks_in(tags: &[String]) -> Option<u64> {
    let mut tagged = tags.iter().filter_map(|tag| tag.strip_prefix(TASKS_TAG));
    tagged.next()?.parse().ok()
}

/// Parses the tag of [`staging_tag`].
pub fn staged_at(tags: &[String]) -> Option<String> {
    let tag = tags.iter().find_map(|tag| tag.strip_prefix(STAGING_TAG))?;
    let mut bytes = Vec::new();
    let mut rest = tag.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
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
        for place in ["/data/Stage", "hdfs://nn:8020/a,b c/ü"] {
            let tag = staging_tag(place).unwrap();
            assert_eq!(tag, tag.to_lowercase());
            assert_eq!(staged_at(&["x".into(), tag]).as_deref(), Some(place));
        }
        assert!(staging_tag(&"/long".repeat(30)).is_err());
        assert_eq!(staged_at(&["ydl-staging:%f".into()]), None);
    }
}
