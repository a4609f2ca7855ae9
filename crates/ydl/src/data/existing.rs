//! Destinations of outputs that are there already, before a job starts.

use super::look::no_hdfs;
use crate::{hdfs::Ways, report::Report};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use tokio::time::Instant;
use ydl_core::{
    Draft, JobSpec, RoleName, TaskId,
    spec::{Existing, Output},
};

/// Numbers that are tried.
pub(super) const NUMBERS_MAX: u32 = 10_000;

/// Where outputs go, with every name filled in.
#[derive(Clone, Copy, Debug)]
pub struct Aim<'a> {
    /// The job's id, once it has one.
    pub id: Option<&'a str>,
    /// The user's home directory in HDFS, where relative destinations count from on a cluster.
    pub home: Option<&'a str>,
}

impl Aim<'_> {
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
            for index in 0..role.instances.max(more) {
                let task = TaskId {
                    role: role.name.clone(),
                    index,
                };
                if output.is_of(role, index) {
                    all.insert(self.place(output.destination(self.id, &task)));
                }
            }
        }
        all
    }

    fn place(&self, to: String) -> String {
        match self.home {
            Some(home) if !to.starts_with('/') && !to.contains("://") => {
                format!("{}/{to}", home.trim_end_matches('/'))
            }
            _ => to,
        }
    }
}

/// Refuses what is there and may not be, and finds free names where those are wanted.
pub async fn settle(
    spec: JobSpec,
    aim: Aim<'_>,
    ways: Option<&Ways>,
    deadline: Instant,
) -> Result<JobSpec, Report> {
    let mut draft = Draft::from(spec.clone());
    for (at, output) in spec.outputs.iter().enumerate() {
        if output.existing == Existing::Replace {
            continue;
        }
        let Some(taken) = taken(&spec, output, aim, ways, deadline).await? else {
            continue;
        };
        if output.existing == Existing::Refuse {
            let what = format!(
                "`{taken}`, where the output `{}` goes, is there already",
                output.from
            );
            let hint = "name another place, move it away, or say `existing: replace` or `existing: number`";
            return Err(Report::bad_input(what).hint(hint));
        }
        let mut free = None;
        for number in 2..NUMBERS_MAX {
            let to = numbered(&output.to, number);
            let one = Output {
                to,
                ..output.clone()
            };
            if self::taken(&spec, &one, aim, ways, deadline)
                .await?
                .is_none()
            {
                free = Some(one.to);
                break;
            }
        }
        draft.outputs[at].to = free.ok_or_else(|| {
            Report::bad_input(format!("no free number was found for `{}`", output.to))
                .hint("name another place, or move some of those away")
        })?;
    }
    JobSpec::new(draft).map_err(|mut all| Report::bad_input(all.swap_remove(0).to_string()))
}

/// The first of an output's destinations that is there.
async fn taken(
    spec: &JobSpec,
    output: &Output,
    aim: Aim<'_>,
    ways: Option<&Ways>,
    deadline: Instant,
) -> Result<Option<String>, Report> {
    for to in aim.destinations(spec, &BTreeMap::new(), output) {
        // A job's id is new: nothing is there.
        if to.contains("{job}") || to.starts_with("file://") {
            continue;
        }
        let there = if to.contains("://") {
            let ways = ways.ok_or_else(|| no_hdfs(&to))?;
            let hdfs = ways.to(&to, deadline).await?;
            let place = hdfs.url(crate::hdfs::path_of(to.trim_end_matches('/')));
            hdfs.stat(&place, deadline).await?.is_some()
        } else {
            // On a cluster a path is on the nodes, where nobody looks from here.
            aim.home.is_none() && Path::new(&to).symlink_metadata().is_ok()
        };
        if there {
            return Ok(Some(to));
        }
    }
    Ok(None)
}

/// The same place with a number: `out-2`, `out-2/`, `model-2.params`.
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

    #[test]
    fn a_number_goes_before_the_ending_of_a_name() {
        for (to, expected) in [
            ("out", "out-2"),
            ("out/", "out-2/"),
            ("a.b/out", "a.b/out-2"),
            (
                "hdfs:///user/me/model.params",
                "hdfs:///user/me/model-2.params",
            ),
            ("hdfs://nn:8020/out/{index}", "hdfs://nn:8020/out/{index}-2"),
            (".hidden", ".hidden-2"),
            ("v1.2/", "v1.2-2/"),
        ] {
            assert_eq!(numbered(to, 2), expected);
        }
    }
}
