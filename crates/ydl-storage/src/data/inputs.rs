//! Listing and validation of the inputs of a job.

use super::{
    listing::{ListedInput, Listing},
    pattern::{is_pattern, is_temporary},
    walk::list_source,
};
use crate::hdfs::FileSystems;
use tokio::time::Instant;
use ydl_core::{
    JobSpec,
    spec::{Input, Memory},
};
use ydl_os::report::Report;

/// Looks at the sources of all inputs; those in HDFS need ways to get there. What makes no sense is refused.
pub async fn list_inputs(
    spec: &JobSpec,
    ways: Option<&FileSystems>,
    deadline: Instant,
) -> Result<Listing, Report> {
    let mut listing = Listing::default();
    for input in &spec.inputs {
        let walked = list_source(&input.source, ways, deadline).await?;
        // A pattern may fit nothing; a name that nothing has is a mistake.
        if !walked.there && !is_pattern(&input.source) {
            return Err(nothing(input));
        }
        listing.notes.extend(walked.notes);
        let mut files = walked.files;
        // What another job is writing there is not there yet.
        files.retain(|file| !file.name.split('/').any(is_temporary));
        // As programs that read Hadoop's directories do: `_SUCCESS` and the like are no data.
        if !walked.single && (input.form.is_split() || !input.form.is_fetched()) {
            files.retain(|file| !file.name.split('/').any(|part| part.starts_with(['_', '.'])));
        }
        if files.is_empty() && !input.allow_empty {
            return Err(nothing(input));
        }
        if let Some(odd) = files.iter().find(|file| file.name.contains(['\n', '\0'])) {
            let what = format!("the name of `{}` holds a line end", odd.url);
            return Err(Report::bad_input(what).hint("rename it"));
        }
        listing.inputs.push(ListedInput {
            name: input.name.clone(),
            single: walked.single && input.form == ydl_core::spec::InputForm::Copy,
            files,
        });
    }
    check(spec, &listing)?;
    Ok(listing)
}

fn nothing(input: &Input) -> Report {
    let (source, name) = (&input.source, &input.name);
    let odd = source.contains(['[', '{']) || source.contains("/~");
    let only = match odd {
        true => "; only `*` and `?` stand for other letters, and nothing else is filled in",
        false => "",
    };
    let (what, hint) = match is_pattern(source) {
        true => (
            format!("input `{name}`: no files match `{source}`"),
            format!("check the pattern, or set `allow_empty: true`{only}"),
        ),
        false if input.allow_empty => (
            format!("input `{name}`: `{source}` does not exist"),
            format!("check the path; `allow_empty` is for patterns and existing directories{only}"),
        ),
        false => {
            (format!("input `{name}`: no files at `{source}`"), format!("check the path{only}"))
        }
    };
    Report::bad_input(what).hint(hint)
}

/// Checks that every task has files and enough disk space.
fn check(spec: &JobSpec, listing: &Listing) -> Result<(), Report> {
    for role in &spec.roles {
        let mut most = vec![0_u64; role.instances as usize];
        for input in spec.inputs_of(role) {
            let Some(listed) = listing.of(&input.name) else {
                continue;
            };
            let (files, tasks) = (listed.files.len(), role.instances as usize);
            if input.form.is_split() && files < tasks && !input.allow_empty {
                let what = format!(
                    "role `{}` has {tasks} tasks, and the input `{}` has only {files} files to divide over them",
                    role.name, input.name
                );
                let hint = format!(
                    "have at most {files} instances, make more and smaller files, or say `allow_empty: true`"
                );
                return Err(Report::bad_input(what).hint(hint));
            }
            if !input.form.is_fetched() {
                continue;
            }
            let sizes: Vec<_> = listed.files.iter().map(|f| (&*f.name, f.bytes)).collect();
            let all: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
            if input.form.is_split() {
                let shares = ydl_core::spec::split(&sizes, tasks);
                for (load, share) in most.iter_mut().zip(shares) {
                    *load += share.iter().map(|at| sizes[*at].1).sum::<u64>();
                }
            } else {
                most.iter_mut().for_each(|load| *load += all);
            }
        }
        let largest = most.into_iter().max().unwrap_or_default();
        if let Some(limit) = spec.disk_mib.filter(|mib| largest > mib << 20) {
            let what = format!(
                "the inputs of a task of role `{}` take {}, and `disk` allows {}",
                role.name,
                Memory(largest.div_ceil(1 << 20)),
                Memory(limit)
            );
            return Err(
                Report::bad_input(what).hint("raise `disk`, or divide the files with `as: split`")
            );
        }
    }
    Ok(())
}
