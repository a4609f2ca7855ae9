//! One pass over `/proc`: who is whose child, and what each uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};

use super::process::Identity;

/// One process as it was when `/proc` was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub pid: u32,
    pub ppid: u32,
    /// The letter `ps` shows: `R` runs, `Z` is a zombie.
    pub state: u8,
    pub started: u64,
    /// Resident memory. Shared pages count in each process, as YARN counts them.
    pub rss_bytes: u64,
    /// Its own and that of the children it has reaped, so that nothing is lost when a child ends.
    pub cpu_ticks: u64,
}

impl Entry {
    /// Reads one process. One that vanishes meanwhile is simply not there.
    pub fn of(pid: u32) -> Option<Entry> {
        let mut text = [0; 2048];
        read_stat(pid, &mut text)
    }

    /// The children of a process, without a look at what is below them.
    pub fn children_of(parent: u32) -> io::Result<Vec<Entry>> {
        if !has_lists(parent)? {
            return Ok(Tree::read()?.children(parent).copied().collect());
        }
        Ok(children_of(parent).into_iter().filter_map(Entry::of).collect())
    }

    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, started: self.started }
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// What a process and all below it use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub processes: usize,
    pub rss_bytes: u64,
    pub cpu_ticks: u64,
}

impl Sum {
    fn with(self, entry: &Entry) -> Sum {
        Sum {
            processes: self.processes + 1,
            rss_bytes: self.rss_bytes.saturating_add(entry.rss_bytes),
            cpu_ticks: self.cpu_ticks.saturating_add(entry.cpu_ticks),
        }
    }
}

/// All processes of this machine that can be seen.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<u32, Entry>,
    children: BTreeSet<(u32, u32)>,
}

impl Tree {
    /// Processes that come or go during the pass may or may not be in it.
    pub fn read() -> io::Result<Tree> {
        let mut tree = Tree::default();
        let mut text = [0; 2048];
        for name in std::fs::read_dir("/proc")? {
            // A directory entry that cannot be read belongs to a process that has just gone.
            let Ok(name) = name else { continue };
            let pid = name.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(entry) = pid.and_then(|pid| read_stat(pid, &mut text)) {
                tree.insert(entry);
            }
        }
        Ok(tree)
    }

    /// `root` and everything below it, without a look at the rest of the machine: what it costs grows with the
    /// processes found, not with all there are.
    pub fn below(root: u32) -> io::Result<Tree> {
        let Some(first) = Entry::of(root) else {
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

    fn insert(&mut self, entry: Entry) {
        self.children.insert((entry.ppid, entry.pid));
        self.entries.insert(entry.pid, entry);
    }

    pub fn entry(&self, pid: u32) -> Option<&Entry> {
        self.entries.get(&pid)
    }

    /// The processes whose parent is `pid`.
    pub fn children(&self, pid: u32) -> impl Iterator<Item = &Entry> {
        self.children
            .range((pid, 0)..=(pid, u32::MAX))
            .filter_map(|(_, child)| self.entries.get(child))
    }

    /// Whether anything below `root` is stopped by a signal, and not by a debugger.
    pub fn has_halted(&self, root: u32) -> bool {
        let below = self.descendants(root);
        below.iter().any(|entry| entry.state == b'T')
    }

    /// Everything below `root`, parents before their children, without `root` itself.
    pub fn descendants(&self, root: u32) -> Vec<&Entry> {
        let mut found: Vec<&Entry> = self.children(root).collect();
        // The pass is no snapshot: a pid used twice could close a circle, so each counts once.
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

    /// What `root` and everything below it use.
    pub fn sum(&self, root: u32) -> Sum {
        let all = self.entry(root).into_iter().chain(self.descendants(root));
        all.fold(Sum::default(), Sum::with)
    }

    /// What programs use that `root` has others start for it: it and its own children are not among them.
    pub fn sum_of_programs(&self, root: u32) -> Sum {
        let below = self.descendants(root).into_iter();
        let programs = below.filter(|entry| entry.ppid != root);
        programs.fold(Sum::default(), Sum::with)
    }
}

/// Whether the kernel was built with lists of children.
fn has_lists(pid: u32) -> io::Result<bool> {
    std::fs::exists(format!("/proc/{pid}/task/{pid}/children"))
}

/// The children of each thread of a process. One that vanishes meanwhile has none.
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

fn read_stat(pid: u32, text: &mut [u8; 2048]) -> Option<Entry> {
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    // The kernel hands the whole line out in one read; a name of 64 bytes and fifty numbers fit.
    let length = file.read(text).ok()?;
    parse(&text[..length], rustix::param::page_size() as u64)
}

fn parse(line: &[u8], page_bytes: u64) -> Option<Entry> {
    // The name stands in parentheses and may itself hold parentheses, spaces and line ends.
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Entry {
        pid,
        ppid: number(1)? as u32,
        state: *fields.first()?.as_bytes().first()?,
        started: number(19)?,
        // A process whose memory is gone already may show a negative figure.
        rss_bytes: fields.get(21)?.parse::<i64>().ok()?.max(0) as u64 * page_bytes,
        cpu_ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_and_spaces_is_read() {
        let line =
            b"42 (a) b (\n)) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 999 8000 5 \
            18446744073709551615 0 0";
        let entry = parse(line, 4096).unwrap();
        assert_eq!(
            entry,
            Entry { pid: 42, ppid: 7, state: b'S', started: 999, rss_bytes: 20480, cpu_ticks: 100 }
        );
        assert_eq!(parse(b"42 (cut", 4096), None);
        assert_eq!(parse(b"", 4096), None);
        assert_eq!(parse(b"42 (cut) S 7", 4096), None);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let mut tree = Tree::default();
        let entry =
            |pid, ppid| Entry { pid, ppid, state: b'R', started: 1, rss_bytes: 10, cpu_ticks: 1 };
        for (pid, ppid) in [(2, 3), (3, 2), (4, 3), (5, 1)] {
            tree.insert(entry(pid, ppid));
        }
        let below: Vec<u32> = tree.descendants(2).iter().map(|entry| entry.pid).collect();
        assert_eq!(below, [3, 4]);
        assert_eq!(tree.sum(2), Sum { processes: 3, rss_bytes: 30, cpu_ticks: 3 });
    }

    #[test]
    fn programs_are_counted_without_who_starts_and_who_keeps_them() {
        let mut tree = Tree::default();
        // The second keeps the third, which has started the fourth; the fifth is a command that waits for others.
        for (pid, ppid) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 0)] {
            tree.insert(Entry {
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
        assert_eq!(tree.sum_of_programs(7), Sum::default());
    }

    #[test]
    fn this_process_is_in_the_tree_and_has_memory() {
        let tree = Tree::read().unwrap();
        let me = std::process::id();
        assert!(tree.entry(me).is_some_and(|entry| entry.rss_bytes > 0));
        assert_eq!(tree.sum(u32::MAX), Sum::default());
    }
}
