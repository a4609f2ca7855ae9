//! Data that comes to tasks before their programs start, and what tasks leave behind.

use super::RoleSpec;
use crate::{
    id::{RoleName, TaskId},
    time::Span,
};
use alloc::{string::String, vec, vec::Vec};
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};

/// Data that tasks find below their working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its name there.
    pub name: String,
    /// Where it comes from: a file, a directory or a pattern, as a path or `hdfs://…`.
    pub source: String,
    /// What a task gets of it.
    pub form: InputForm,
    /// Whose tasks get it; nobody named means every role that is not a service.
    pub roles: Vec<RoleName>,
    /// Whether a task may find nothing in it.
    pub allow_empty: bool,
}

/// What a task gets of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputForm {
    /// All of it.
    Copy,
    /// Its share of the files.
    Split,
    /// The paths of all files: the program reads them itself.
    List,
    /// The paths of its share of the files.
    SplitList,
}

impl InputForm {
    /// Whether files are divided over a role's tasks.
    pub fn is_split(self) -> bool {
        matches!(self, InputForm::Split | InputForm::SplitList)
    }

    /// Whether files come into the container.
    pub fn is_fetched(self) -> bool {
        matches!(self, InputForm::Copy | InputForm::Split)
    }
}

impl Input {
    /// The variable that tells programs where it is: `YDL_INPUT_TRAIN` for `train`.
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

/// Divides files over tasks: each file to exactly one, so that their bytes are as even as whole files allow. The same
/// files in any order give the same shares. Each share lists positions in `files`, in the order of the files' names.
pub fn split(files: &[(&str, u64)], tasks: usize) -> Vec<Vec<usize>> {
    let mut shares = vec![Vec::new(); tasks];
    if tasks == 0 {
        return shares;
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| (Reverse(files[*at].1), files[*at].0));
    // How much each task has, in bytes and in files: empty files are spread, too.
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

/// Something a task leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// A path or pattern below the working directory.
    pub from: String,
    /// Where it goes; `{job}`, `{role}`, `{index}` are filled in.
    pub to: String,
    /// Whose it is.
    #[serde(default)]
    pub scope: OutputScope,
    /// How often what is new in it is sent while the program runs.
    #[serde(default)]
    pub every: Option<Span>,
    /// What happens when its destination is there already.
    #[serde(default)]
    pub existing: ExistingPolicy,
}

impl Output {
    /// The plain kind: from every task, at the end, over whatever has the same name.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Output {
        Output {
            from: from.into(),
            to: to.into(),
            scope: OutputScope::All,
            every: None,
            existing: ExistingPolicy::Overwrite,
        }
    }

    /// Whether the task of that number in a role sends it.
    pub fn is_produced_by(&self, role: &RoleSpec, index: u32) -> bool {
        match &self.scope {
            OutputScope::All => !role.is_auxiliary(),
            OutputScope::Role(name) => role.name == *name,
            OutputScope::Task(one) => role.name == one.role && index == one.index,
        }
    }

    /// Where it goes for one task of a job; a job that has no id yet keeps the place for it.
    pub fn destination(&self, job: Option<&str>, task: &TaskId) -> String {
        let to = match job {
            Some(id) => self.to.replace("{job}", id),
            None => self.to.clone(),
        };
        let index = alloc::format!("{}", task.index);
        to.replace("{role}", task.role.as_str()).replace("{index}", &index)
    }
}

/// Whose output it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputScope {
    /// Every task's.
    #[default]
    All,
    /// That of every task of a role.
    Role(RoleName),
    /// That of one task alone.
    Task(TaskId),
}

/// What happens when the destination of an output is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExistingPolicy {
    /// The job is not started.
    Fail,
    /// Files of the same names are replaced, others stay.
    #[default]
    Overwrite,
    /// It goes to the first free place beside it: `out-2`, `out-3`, …
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
