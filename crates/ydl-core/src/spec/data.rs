//! Inputs and outputs of tasks.

use super::RoleSpec;
use crate::{
    id::{RoleName, TaskId},
    time::Span,
};
use alloc::{string::String, vec, vec::Vec};
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};

/// An input, available below the working directory of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Name in the working directory.
    pub name: String,
    /// Source: a file, a directory or a pattern, as a path or `hdfs://…`.
    pub source: String,
    /// Part that a task gets.
    pub form: InputForm,
    /// Roles that get the input; empty for every role that is not auxiliary.
    pub roles: Vec<RoleName>,
    /// True if a task may get no files.
    pub allow_empty: bool,
}

/// Part of an input that a task gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputForm {
    /// All files.
    #[default]
    Copy,
    /// Its share of the files.
    Split,
    /// Paths of all files; the program reads them itself.
    List,
    /// Paths of its share of the files.
    SplitList,
}

impl InputForm {
    /// Returns true if files are divided over a role's tasks.
    pub fn is_split(self) -> bool {
        matches!(self, InputForm::Split | InputForm::SplitList)
    }

    /// Returns true if files are downloaded into the container.
    pub fn is_fetched(self) -> bool {
        matches!(self, InputForm::Copy | InputForm::Split)
    }
}

impl Input {
    /// Returns the environment variable with its path: `YDL_INPUT_TRAIN` for `train`.
    pub fn env_variable(&self) -> String {
        let fits = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        let mut name = String::from("YDL_INPUT_");
        name.extend(self.name.chars().map(fits));
        name
    }
}

/// Divides files over tasks: each file to exactly one task, with the bytes balanced as far as whole
/// files allow. The result does not depend on the order of the files. Each share lists indexes into
/// `files`, sorted by file name.
pub fn split(files: &[(&str, u64)], tasks: usize) -> Vec<Vec<usize>> {
    let mut shares = vec![Vec::new(); tasks];
    if tasks == 0 {
        return shares;
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| (Reverse(files[*at].1), files[*at].0));
    // Load of each task in bytes and files; empty files are spread, too.
    let mut loads = alloc::collections::BTreeSet::new();
    loads.extend((0..tasks).map(|task| (0_u128, 0_usize, task)));
    for at in order {
        let Some((bytes, count, task)) = loads.pop_first() else {
            break;
        };
        shares[task].push(at);
        loads.insert((bytes + u128::from(files[at].1), count + 1, task));
    }
    for share in &mut shares {
        share.sort_by_key(|at| files[*at].0);
    }
    shares
}

/// An output of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Path or pattern below the working directory.
    pub from: String,
    /// Destination; `{job}`, `{role}` and `{index}` are substituted.
    pub to: String,
    /// Tasks that produce the output.
    #[serde(default)]
    pub scope: OutputScope,
    /// Interval at which changes are uploaded while the program runs.
    #[serde(default)]
    pub every: Option<Span>,
    /// Policy for an existing destination.
    #[serde(default)]
    pub existing: ExistingPolicy,
}

impl Output {
    /// Returns an output of every task, uploaded at the end, that overwrites existing files.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Output {
        Output {
            from: from.into(),
            to: to.into(),
            scope: OutputScope::All,
            every: None,
            existing: ExistingPolicy::Overwrite,
        }
    }

    /// Returns true if the task with that index of a role produces it.
    pub fn is_produced_by(&self, role: &RoleSpec, index: u32) -> bool {
        match &self.scope {
            OutputScope::All => !role.is_auxiliary(),
            OutputScope::Role(name) => role.name == *name,
            OutputScope::Task(one) => role.name == one.role && index == one.index,
        }
    }

    /// Returns the destination for one task. `{job}` is kept if the job has no id yet.
    pub fn destination(&self, job: Option<&str>, task: &TaskId) -> String {
        let to = match job {
            Some(id) => self.to.replace("{job}", id),
            None => self.to.clone(),
        };
        let index = alloc::format!("{}", task.index);
        to.replace("{role}", task.role.as_str()).replace("{index}", &index)
    }
}

/// Tasks that produce an output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputScope {
    /// Every task.
    #[default]
    All,
    /// Every task of a role.
    Role(RoleName),
    /// One task.
    Task(TaskId),
}

/// Policy for an existing destination of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExistingPolicy {
    /// The job is not started.
    Fail,
    /// Files with the same names are overwritten; others stay.
    #[default]
    Overwrite,
    /// The output goes to the first unused name: `out-2`, `out-3`, …
    Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_evenly_by_size_each_to_one_task() {
        let files = [("a", 10), ("b", 1), ("c", 9), ("d", 8), ("e", 3), ("f", 0), ("g", 0)];
        let shares = split(&files, 3);
        let mut all: Vec<usize> = shares.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        let bytes = |share: &Vec<usize>| share.iter().map(|at| files[*at].1).sum::<u64>();
        let loads: Vec<u64> = shares.iter().map(bytes).collect();
        assert_eq!(loads, [10, 10, 11]);
    }

    #[test]
    fn the_order_in_which_files_were_listed_changes_no_share() {
        let mut state = 7_u64;
        for tasks in 1..9 {
            let mut files: Vec<(String, u64)> = Vec::new();
            for n in 0..40 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                files.push((alloc::format!("part-{n:03}"), (state >> 33) % 50));
            }
            let names = |files: &[(String, u64)]| -> Vec<Vec<String>> {
                let listed: Vec<(&str, u64)> =
                    files.iter().map(|(name, n)| (name.as_str(), *n)).collect();
                let name = |at: usize| files[at].0.clone();
                let shares = split(&listed, tasks).into_iter();
                shares.map(|share| share.into_iter().map(name).collect()).collect()
            };
            let first = names(&files);
            files.reverse();
            assert_eq!(first, names(&files));
            files.rotate_left(13);
            assert_eq!(first, names(&files));
            let most = first.iter().map(Vec::len).sum::<usize>();
            assert_eq!(most, files.len(), "none is lost, none is there twice");
            let load = |share: &Vec<String>| -> u64 {
                let of = |name: &String| files.iter().find(|(other, _)| other == name);
                share.iter().filter_map(of).map(|(_, bytes)| *bytes).sum()
            };
            let loads: Vec<u64> = first.iter().map(load).collect();
            let (least, most) = (loads.iter().min(), loads.iter().max());
            assert!(
                most.unwrap() - least.unwrap() <= 50,
                "no two differ by more than one file: {loads:?}"
            );
        }
    }

    #[test]
    fn fewer_files_than_tasks_leave_the_last_tasks_empty() {
        let shares = split(&[("a", 1), ("b", 0)], 4);
        assert_eq!(shares, [vec![0], vec![1], vec![], vec![]]);
        assert_eq!(split(&[("a", 1)], 0), Vec::<Vec<usize>>::new());
    }
}
