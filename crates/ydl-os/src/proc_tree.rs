//! Snapshot of `/proc`: the process tree and what each process uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};

use super::process::Identity;

/// Process as read from `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    pub pid: u32,
    pub ppid: u32,
    /// State letter as in `ps`: `R` is running, `Z` a zombie.
    pub state: u8,
    pub started: u64,
    /// Resident memory. Shared pages count in each process, as in YARN.
    pub rss_bytes: u64,
    /// CPU time, including that of reaped children.
    pub cpu_ticks: u64,
}

impl ProcessInfo {
    /// Reads one process. Returns `None` if it is gone.
    pub fn of(pid: u32) -> Option<ProcessInfo> {
        let mut text = [0; 2048];
        read_stat(pid, &mut text)
    }

    /// Lists the children of a process without reading their descendants.
    pub(crate) fn children_of(parent: u32) -> io::Result<Vec<ProcessInfo>> {
        if !has_lists(parent)? {
            return Ok(Tree::read()?.children(parent).copied().collect());
        }
        Ok(children_of(parent).into_iter().filter_map(ProcessInfo::of).collect())
    }

    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, started: self.started }
    }

    /// Returns whether it has ended and waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Total use of a process and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    pub processes: usize,
    pub rss_bytes: u64,
    pub cpu_ticks: u64,
}

impl TreeUsage {
    fn with(self, entry: &ProcessInfo) -> TreeUsage {
        TreeUsage {
            processes: self.processes + 1,
            rss_bytes: self.rss_bytes.saturating_add(entry.rss_bytes),
            cpu_ticks: self.cpu_ticks.saturating_add(entry.cpu_ticks),
        }
    }
}

/// All visible processes of this machine.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<u32, ProcessInfo>,
    children: BTreeSet<(u32, u32)>,
}

impl Tree {
    /// Reads all processes. Those that start or end meanwhile may be missing.
    pub fn read() -> io::Result<Tree> {
        let mut tree = Tree::default();
        let mut text = [0; 2048];
        for name in std::fs::read_dir("/proc")? {
            // An unreadable directory entry belongs to a process that just ended.
            let Ok(name) = name else { continue };
            let pid = name.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(entry) = pid.and_then(|pid| read_stat(pid, &mut text)) {
                tree.insert(entry);
            }
        }
        Ok(tree)
    }

    /// Reads `root` and its descendants only: the cost grows with the processes found, not with all processes of the machine.
    pub fn below(root: u32) -> io::Result<Tree> {
        let Some(first) = ProcessInfo::of(root) else {
            return Ok(Tree::default());
        };
        if !has_lists(root)? {
            return Tree::read();
        }
        let mut tree = Tree::default();
        let mut text = [0; 2048];
        let mut next = vec![first];
        while let Some(entry) = next.pop() {
            let known = tree.entries.contains_key(&entry.pid);
            let children = if known { Vec::new() } else { children_of(entry.pid) };
            tree.insert(entry);
            next.extend(children.into_iter().filter_map(|pid| read_stat(pid, &mut text)));
        }
        Ok(tree)
    }

    fn insert(&mut self, entry: ProcessInfo) {
        self.children.insert((entry.ppid, entry.pid));
        self.entries.insert(entry.pid, entry);
    }

    pub fn entry(&self, pid: u32) -> Option<&ProcessInfo> {
        self.entries.get(&pid)
    }

    /// Children of `pid`.
    pub fn children(&self, pid: u32) -> impl Iterator<Item = &ProcessInfo> {
        self.children
            .range((pid, 0)..=(pid, u32::MAX))
            .filter_map(|(_, child)| self.entries.get(child))
    }

    /// Returns whether a descendant of `root` is stopped by a signal, not by a debugger.
    pub fn has_halted(&self, root: u32) -> bool {
        let below = self.descendants(root);
        below.iter().any(|entry| entry.state == b'T')
    }

    /// Descendants of `root`, parents before their children, without `root` itself.
    pub fn descendants(&self, root: u32) -> Vec<&ProcessInfo> {
        let mut found: Vec<&ProcessInfo> = self.children(root).collect();
        // The pass is not atomic: a reused pid could close a cycle, so each pid counts once.
        let mut seen: BTreeSet<u32> = found.iter().map(|entry| entry.pid).collect();
        seen.insert(root);
        let mut next = 0;
        while next < found.len() {
            let parent = found[next].pid;
            found.extend(self.children(parent).filter(|entry| seen.insert(entry.pid)));
            next += 1;
        }
        found
    }

    /// Total use of `root` and its descendants.
    pub fn sum(&self, root: u32) -> TreeUsage {
        let all = self.entry(root).into_iter().chain(self.descendants(root));
        all.fold(TreeUsage::default(), TreeUsage::with)
    }

    /// Total use of the programs that the children of `root` started; `root` and its own children are excluded.
    pub fn sum_of_programs(&self, root: u32) -> TreeUsage {
        let below = self.descendants(root).into_iter();
        let programs = below.filter(|entry| entry.ppid != root);
        programs.fold(TreeUsage::default(), TreeUsage::with)
    }
}

/// Returns whether the kernel was built with `CONFIG_PROC_CHILDREN`.
fn has_lists(pid: u32) -> io::Result<bool> {
    std::fs::exists(format!("/proc/{pid}/task/{pid}/children"))
}

/// Children of each thread of a process; empty if it is gone.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.filter_map(|thread| {
        let list = thread.ok()?.path().join("children");
        std::fs::read_to_string(list).ok()
    });
    let pids = lists.flat_map(|list| {
        let pids = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<u32>>()
    });
    pids.collect()
}

fn read_stat(pid: u32, text: &mut [u8; 2048]) -> Option<ProcessInfo> {
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    // The kernel returns the whole line in one read; a name of 64 bytes and fifty numbers fit.
    let length = file.read(text).ok()?;
    parse(&text[..length], rustix::param::page_size() as u64)
}

fn parse(line: &[u8], page_bytes: u64) -> Option<ProcessInfo> {
    // The name is in parentheses and may itself contain parentheses, spaces and newlines.
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(ProcessInfo {
        pid,
        ppid: number(1)? as u32,
        state: *fields.first()?.as_bytes().first()?,
        started: number(19)?,
        // A process whose memory is already freed may report a negative value.
        rss_bytes: fields.get(21)?.parse::<i64>().ok()?.max(0) as u64 * page_bytes,
        cpu_ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_parsed() {
        let line =
            b"42 (a) b (\n)) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 999 8000 5 \
            18446744073709551615 0 0";
        let entry = parse(line, 4096).unwrap();
        assert_eq!(
            entry,
            ProcessInfo {
                pid: 42,
                ppid: 7,
                state: b'S',
                started: 999,
                rss_bytes: 20480,
                cpu_ticks: 100
            }
        );
        assert_eq!(parse(b"42 (cut", 4096), None);
        assert_eq!(parse(b"", 4096), None);
        assert_eq!(parse(b"42 (cut) S 7", 4096), None);
    }

    #[test]
    fn a_cycle_of_parents_terminates() {
        let mut tree = Tree::default();
        let entry = |pid, ppid| ProcessInfo {
            pid,
            ppid,
            state: b'R',
            started: 1,
            rss_bytes: 10,
            cpu_ticks: 1,
        };
        for (pid, ppid) in [(2, 3), (3, 2), (4, 3), (5, 1)] {
            tree.insert(entry(pid, ppid));
        }
        let below: Vec<u32> = tree.descendants(2).iter().map(|entry| entry.pid).collect();
        assert_eq!(below, [3, 4]);
        assert_eq!(tree.sum(2), TreeUsage { processes: 3, rss_bytes: 30, cpu_ticks: 3 });
    }

    #[test]
    fn program_usage_excludes_the_agent_and_its_shim() {
        let mut tree = Tree::default();
        // The second keeps the third, which has started the fourth; the fifth is a command that waits for others.
        for (pid, ppid) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 0)] {
            tree.insert(ProcessInfo {
                pid,
                ppid,
                state: b'S',
                started: 1,
                rss_bytes: 1 << pid,
                cpu_ticks: 1,
            });
        }
        let programs = tree.sum_of_programs(1);
        assert_eq!((programs.processes, programs.rss_bytes), (2, 8 + 16));
        assert_eq!(tree.sum_of_programs(7), TreeUsage::default());
    }

    #[test]
    fn this_process_is_in_the_tree_with_memory() {
        let tree = Tree::read().unwrap();
        let me = std::process::id();
        assert!(tree.entry(me).is_some_and(|entry| entry.rss_bytes > 0));
        assert_eq!(tree.sum(u32::MAX), TreeUsage::default());
    }
}
