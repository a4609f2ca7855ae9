//! Destinations of outputs that are there already, before a job starts.

use crate::{
    hdfs::FileSystems,
    store::{is_local, store_of},
};
use rustix::fs::{Access, AtFlags, CWD};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};
use tokio::time::Instant;
use ydl_core::{
    JobSpec, JobSpecBuilder, RoleName, TaskId,
    spec::{ExistingPolicy, Output},
};
use ydl_os::{reason, report::Report};

/// Maximum number that is tried.
pub(super) const NUMBERS_MAX: u32 = 10_000;
/// Reason to reject a file as the destination of several files.
const FILE_INSTEAD_OF_DIRECTORY: &str = "it is a file, and a directory is needed";

/// Resolves the destinations of outputs.
#[derive(Clone, Copy, Debug)]
pub struct Destinations<'a> {
    /// The job's id, once it has one.
    pub id: Option<&'a str>,
    /// The user's home directory in HDFS, where relative destinations count from on a cluster.
    pub home: Option<&'a str>,
}

impl Destinations<'_> {
    /// Every destination of an output, once. A role has the tasks that it had at submit, or those `more` says.
    pub fn destinations(
        &self,
        spec: &JobSpec,
        more: &BTreeMap<RoleName, u32>,
        output: &Output,
    ) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for role in &spec.roles {
            let more = more.get(&role.name).copied().unwrap_or_default();
            for index in 0..role.max_instances().max(more) {
                let task = TaskId { role: role.name.clone(), index };
                if output.is_produced_by(role, index) {
                    all.insert(self.place(output.destination(self.id, &task)));
                }
            }
        }
        all
    }

    fn place(&self, to: String) -> String {
        match self.home {
            Some(home) if !to.starts_with('/') && is_local(&to) => {
                format!("{}/{to}", home.trim_end_matches('/'))
            }
            _ => to,
        }
    }
}

/// Refuses what is there and may not be, and finds free names where those are wanted.
pub async fn resolve_existing(
    spec: JobSpec,
    aim: Destinations<'_>,
    ways: Option<&FileSystems>,
    deadline: Instant,
) -> Result<JobSpec, Report> {
    let mut draft = JobSpecBuilder::from(spec.clone());
    for (at, output) in spec.outputs.iter().enumerate() {
        can_be_written(&spec, output, aim, ways, deadline).await?;
        if output.existing == ExistingPolicy::Overwrite {
            continue;
        }
        let Some(taken) = taken(&spec, output, aim, ways, deadline).await? else {
            continue;
        };
        if output.existing == ExistingPolicy::Fail {
            let what =
                format!("the destination `{taken}` of the output `{}` already exists", output.from);
            let hint = "choose another destination, move it away, or set `existing: overwrite` or `existing: number`";
            return Err(Report::bad_input(what).hint(hint));
        }
        let mut free = None;
        for number in 2..NUMBERS_MAX {
            let to = numbered(&output.to, number);
            let one = Output { to, ..output.clone() };
            if self::taken(&spec, &one, aim, ways, deadline).await?.is_none() {
                free = Some(one.to);
                break;
            }
        }
        draft.outputs[at].to = free.ok_or_else(|| {
            Report::bad_input(format!("no free number was found for `{}`", output.to))
                .hint("choose another destination, or move some of these away")
        })?;
    }
    draft.build().map_err(|mut all| Report::bad_input(all.swap_remove(0).to_string()))
}

/// Refuses a destination to which nothing can be written, as far as that can be seen before.
async fn can_be_written(
    spec: &JobSpec,
    output: &Output,
    aim: Destinations<'_>,
    ways: Option<&FileSystems>,
    deadline: Instant,
) -> Result<(), Report> {
    let last = output.from.rsplit('/').next().unwrap_or_default();
    let is_below = output.from.ends_with('/') || output.to.ends_with('/') || last.contains('*');
    for to in aim.destinations(spec, &BTreeMap::new(), output) {
        if to.contains("{job}") || to.starts_with("file://") {
            continue;
        }
        let refused = |why: String| {
            let what = format!("the output `{}` cannot be copied to `{to}`: {why}", output.from);
            Err(Report::bad_input(what)
                .hint("choose another destination, or make this one writable"))
        };
        if !is_local(&to) {
            if ways.is_none() || !is_below {
                continue;
            }
            let store = store_of(&to, ways, deadline).await?;
            let there = store.stat(to.trim_end_matches('/'), deadline).await;
            if there.map_err(Report::from)?.is_some_and(|entry| !entry.directory) {
                return refused(FILE_INSTEAD_OF_DIRECTORY.to_owned());
            }
        } else if aim.home.is_none()
            && let Err(why) = is_writable(Path::new(to.trim_end_matches('/')), is_below)
        {
            return refused(why);
        }
        // The others differ in a number: many tasks are no reason to look a thousand times.
        if !is_local(&to) && output.existing == ExistingPolicy::Overwrite {
            break;
        }
    }
    Ok(())
}

/// Checks that a destination can be written. Returns the reason if not.
fn is_writable(to: &Path, is_below: bool) -> Result<(), String> {
    let there = to.metadata().ok();
    if let Some(about) = &there {
        match (about.is_dir(), is_below) {
            (false, true) => return Err(FILE_INSTEAD_OF_DIRECTORY.to_owned()),
            (false, false) if !about.is_file() => {
                return Err("it is not a regular file".to_owned());
            }
            _ => {}
        }
    }
    // What is written there is a new file in a directory, and the nearest one that exists decides.
    let dirs = to.ancestors().skip(usize::from(there.is_some_and(|about| !about.is_dir())));
    for dir in dirs {
        let about = match dir.metadata() {
            Ok(about) => about,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                continue;
            }
            Err(error) => return Err(format!("`{}`: {}", dir.display(), reason(&error))),
        };
        if !about.is_dir() {
            return Err(format!("`{}` is not a directory", dir.display()));
        }
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        let allowed = rustix::fs::accessat(CWD, dir, wanted, AtFlags::EACCESS);
        return allowed.map_err(|error| format!("`{}`: {}", dir.display(), reason(&error.into())));
    }
    Ok(())
}

/// Returns the first destination of an output that exists.
async fn taken(
    spec: &JobSpec,
    output: &Output,
    aim: Destinations<'_>,
    ways: Option<&FileSystems>,
    deadline: Instant,
) -> Result<Option<String>, Report> {
    for to in aim.destinations(spec, &BTreeMap::new(), output) {
        // A job's id is new: nothing is there.
        if to.contains("{job}") || to.starts_with("file://") {
            continue;
        }
        // On a cluster a path is on the nodes, which the client cannot access.
        if is_local(&to) && aim.home.is_some() {
            continue;
        }
        let store = store_of(&to, ways, deadline).await?;
        let there = store.stat(to.trim_end_matches('/'), deadline).await;
        if there.map_err(Report::from)?.is_some() {
            return Ok(Some(to));
        }
    }
    Ok(None)
}

/// Returns the numbered variant of a destination: `out-2`, `out-2/`, `model-2.params`.
pub fn numbered(to: &str, number: u32) -> String {
    let slash = if to.ends_with('/') { "/" } else { "" };
    let base = to.trim_end_matches('/');
    let (dir, name) = match base.rsplit_once('/') {
        Some((dir, name)) => (format!("{dir}/"), name),
        None => (String::new(), base),
    };
    let ending = |ending: &str| !ending.is_empty() && ending.chars().all(|c| c.is_alphanumeric());
    match name.rsplit_once('.') {
        Some((stem, end)) if slash.is_empty() && !stem.is_empty() && ending(end) => {
            format!("{dir}{stem}-{number}.{end}")
        }
        _ => format!("{dir}{name}-{number}{slash}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_place_that_cannot_be_written_to_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        assert_eq!(is_writable(&at("new/deep"), true), Ok(()));
        assert_eq!(is_writable(&at("file"), false), Ok(()));
        let of = |name, below| is_writable(&at(name), below).unwrap_err();
        assert_eq!(of("file", true), FILE_INSTEAD_OF_DIRECTORY);
        assert!(of("file/x", false).ends_with("file` is not a directory"));
        // Root may write everywhere.
        let is_root = dir.path().metadata().unwrap().uid() == 0;
        std::fs::create_dir(at("closed")).unwrap();
        let closed = std::fs::Permissions::from_mode(0o500);
        std::fs::set_permissions(at("closed"), closed).unwrap();
        assert_eq!(is_writable(&at("closed/x"), true).is_ok(), is_root);
    }

    #[test]
    fn a_number_goes_before_the_ending_of_a_name() {
        for (to, expected) in [
            ("out", "out-2"),
            ("out/", "out-2/"),
            ("a.b/out", "a.b/out-2"),
            ("hdfs:///user/me/model.params", "hdfs:///user/me/model-2.params"),
            ("hdfs://nn:8020/out/{index}", "hdfs://nn:8020/out/{index}-2"),
            (".hidden", ".hidden-2"),
            ("v1.2/", "v1.2-2/"),
        ] {
            assert_eq!(numbered(to, 2), expected);
        }
    }
}
