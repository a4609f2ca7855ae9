//! Follows the output of a job's tasks.
//!
//! The kernel reports which directories changed, so new output is read at once. As a fallback all streams are read once a
//! second, or ten times a second without notifications.

mod stream_tail;

use super::dir_watcher::{DirChanges, DirWatcher};
use crate::{
    client::mirror::CopySelection,
    logs::LogReader,
    terminal::{LinePrefixer, Paint},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    time::Duration,
};
use stream_tail::{StreamTail, seek_to_lines};
use tokio::time::sleep;
use ydl_core::{RoleName, TaskId};
use ydl_proto::files::JobDir;

/// Number of streams above which idle ones are closed, because file descriptors are limited.
const OPEN_MAX: usize = 200;
/// Poll interval without change notifications from the kernel.
const POLL: Duration = Duration::from_millis(100);

/// Output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// One stream of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub task: TaskId,
    pub attempt: u32,
    pub stream: Stream,
}

/// Selection of the streams and lines that are printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamSelection {
    pub role: Option<String>,
    pub index: Option<u32>,
    pub attempt: Option<u32>,
    pub stream: Option<Stream>,
    /// Number of existing lines to print, counted from the end.
    pub tail: Option<usize>,
}

impl StreamSelection {
    fn includes(&self, task: &TaskId, attempt: u32) -> bool {
        let role = self.role.as_ref().is_none_or(|role| task.role.as_str() == role);
        let index = self.index.is_none_or(|index| task.index == index);
        role && index && self.attempt.is_none_or(|wanted| wanted == attempt)
    }

    fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let wanted = self.stream;
        [Stream::Stdout, Stream::Stderr]
            .into_iter()
            .filter(move |stream| wanted.is_none_or(|wanted| wanted == *stream))
    }
}

/// Prefix of each line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prefix {
    /// No prefix: bytes are passed through unchanged.
    Raw,
    /// The name of the task.
    Task(Paint),
    /// No name: whole lines that begin with ` | `, which the caller removes.
    Lines,
}

/// Files that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogSource {
    /// The job's own files.
    Original,
    /// A mirror: what was passed on is needed no more, so its disk space is freed.
    Copy,
}

/// Followed streams of a job.
#[derive(Debug)]
pub(crate) struct LogTails {
    dir: JobDir,
    source: LogSource,
    select: StreamSelection,
    prefix: Prefix,
    tails: BTreeMap<StreamId, StreamTail>,
    /// Change notifications; without them all streams are polled.
    watcher: Option<DirWatcher>,
    watched: BTreeMap<i32, (TaskId, u32)>,
    changed: BTreeSet<(TaskId, u32)>,
}

impl LogTails {
    /// Creates a set without streams.
    pub(crate) fn new(
        dir: &JobDir,
        source: LogSource,
        select: StreamSelection,
        prefix: Prefix,
    ) -> LogTails {
        LogTails {
            dir: dir.clone(),
            source,
            select,
            prefix,
            tails: BTreeMap::new(),
            watcher: DirWatcher::new().ok(),
            watched: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Returns the selection of logs to copy from a cluster.
    pub(crate) fn copy_selection(&self) -> CopySelection {
        CopySelection {
            role: self.select.role.clone(),
            index: self.select.index,
            attempt: self.select.attempt,
            last_only: false,
            tail: None,
        }
    }

    /// Returns the names of an attempt's selected streams.
    pub(crate) fn streams(&self, task: &TaskId, attempt: u32) -> Vec<&'static str> {
        match self.select.includes(task, attempt) {
            true => self.select.streams().map(Stream::name).collect(),
            false => Vec::new(),
        }
    }

    /// Follows an attempt if it is selected and not followed yet.
    pub(crate) fn add(&mut self, task: &TaskId, attempt: u32) {
        if !self.select.includes(task, attempt) {
            return;
        }
        let dir = self.dir.attempt_logs(task, attempt);
        let mut new = false;
        for stream in self.select.streams() {
            let id = StreamId { task: task.clone(), attempt, stream };
            if self.tails.contains_key(&id) {
                continue;
            }
            new = true;
            let mut reader = LogReader::new(&dir, stream.name(), 0);
            if let Some(lines) = self.select.tail {
                seek_to_lines(&mut reader, lines);
            }
            let lines = match self.prefix {
                Prefix::Raw => None,
                Prefix::Task(paint) => Some(LinePrefixer::new(paint.task(task))),
                Prefix::Lines => Some(LinePrefixer::new("")),
            };
            let offset = reader.offset();
            let freed = (self.source == LogSource::Copy).then_some(offset);
            let tail = StreamTail { reader: Some(reader), offset, lines, ended: false, freed };
            self.tails.insert(id, tail);
        }
        if new {
            self.changed.insert((task.clone(), attempt));
            self.watch(task, attempt);
        }
    }

    /// Follows an attempt unless a later one of the same task is followed already.
    pub(crate) fn add_newer(&mut self, task: &TaskId, attempt: u32) {
        if self.newest(task).is_none_or(|newest| newest < attempt) {
            self.add(task, attempt);
        }
    }

    fn newest(&self, task: &TaskId) -> Option<u32> {
        let first = |attempt| StreamId { task: task.clone(), attempt, stream: Stream::Stdout };
        let of_task = self.tails.range(first(0)..=first(u32::MAX));
        of_task.map(|(id, _)| id.attempt).next_back()
    }

    fn watch(&mut self, task: &TaskId, attempt: u32) {
        let dir = self.dir.attempt_logs(task, attempt);
        let watch = self.watcher.as_ref().map(|watcher| watcher.watch(&dir));
        match watch {
            Some(Ok(watch)) => {
                self.watched.insert(watch, (task.clone(), attempt));
            }
            // An attempt that never started has no directory. The follower polls it once a second.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(_)) | None => self.watcher = None,
        }
    }

    /// Marks an attempt as ended: its streams do not grow any more.
    pub(crate) fn end(&mut self, task: &TaskId, attempt: u32) {
        for stream in self.select.streams() {
            let id = StreamId { task: task.clone(), attempt, stream };
            if let Some(tail) = self.tails.get_mut(&id) {
                tail.ended = true;
            }
        }
        let ended = (task.clone(), attempt);
        if let Some(watcher) = &self.watcher {
            let watches = self.watched.extract_if(.., |_, watched| *watched == ended);
            watches.for_each(|(watch, _)| watcher.unwatch(watch));
        }
        self.changed.insert(ended);
    }

    /// Follows the attempts that have a log directory: the last one of each task, or all of them.
    pub(crate) fn scan(&mut self, all_attempts: bool) {
        for (task, attempts) in attempts(&self.dir) {
            let last = attempts.last().copied();
            for attempt in attempts {
                let wanted = all_attempts || self.select.attempt.is_some() || Some(attempt) == last;
                if wanted {
                    self.add(&task, attempt);
                }
            }
        }
    }

    /// Follows the attempts that have a log directory and are newer than those followed.
    pub(crate) fn scan_newer(&mut self) {
        for (task, attempts) in attempts(&self.dir) {
            let newest = self.newest(&task);
            for attempt in attempts {
                if newest.is_none_or(|newest| newest < attempt) {
                    self.add(&task, attempt);
                }
            }
        }
    }

    /// Waits until a stream may have grown.
    pub(crate) async fn wait(&mut self) {
        if !self.changed.is_empty() {
            return;
        }
        let changes = match &mut self.watcher {
            Some(watcher) => watcher.next().await,
            None => {
                sleep(POLL).await;
                Some(DirChanges::All)
            }
        };
        match changes {
            Some(DirChanges::Some(watches)) => {
                let attempts = watches.iter().filter_map(|watch| self.watched.get(watch));
                self.changed.extend(attempts.cloned());
            }
            Some(DirChanges::All) => self.all_changed(),
            None => self.watcher = None,
        }
    }

    /// Marks every open stream as changed, so that the next [`LogTails::drain`] reads it.
    pub(crate) fn all_changed(&mut self) {
        let open = self.tails.iter().filter(|(_, tail)| tail.reader.is_some());
        self.changed.extend(open.map(|(id, _)| (id.task.clone(), id.attempt)));
    }

    /// Passes new output to `write`. Returns true if a stream has more data than one pass reads.
    pub(crate) fn drain<E>(
        &mut self,
        write: &mut impl FnMut(&StreamId, &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let closes_idle = self.tails.len() > OPEN_MAX;
        let mut more = false;
        for (task, attempt) in std::mem::take(&mut self.changed) {
            for stream in self.select.streams() {
                let id = StreamId { task: task.clone(), attempt, stream };
                let Some(tail) = self.tails.get_mut(&id) else {
                    continue;
                };
                let dir = self.dir.attempt_logs(&task, attempt);
                let mut out = Vec::new();
                let full = tail.read(&dir, stream, &mut out);
                if full {
                    more = true;
                    self.changed.insert((task.clone(), attempt));
                } else if tail.ended || closes_idle {
                    tail.reader = None;
                }
                if !out.is_empty() {
                    write(&id, &out)?;
                }
            }
        }
        Ok(more)
    }

    /// Passes all remaining output to `write`, including incomplete last lines.
    pub(crate) fn finish<E>(
        &mut self,
        write: &mut impl FnMut(&StreamId, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = self.tails.keys().map(|id| (id.task.clone(), id.attempt));
        self.changed = all.collect();
        while self.drain(write)? {}
        for (id, tail) in &mut self.tails {
            let mut out = Vec::new();
            if let Some(lines) = &mut tail.lines {
                lines.finish(&mut out);
            }
            if !out.is_empty() {
                write(id, &out)?;
            }
        }
        Ok(())
    }
}

/// Returns every attempt that has a log directory, by task, in order.
pub(crate) fn attempts(dir: &JobDir) -> BTreeMap<TaskId, Vec<u32>> {
    let mut found = BTreeMap::new();
    for role in names(&dir.logs()) {
        for index in numbers(&dir.logs().join(&role)) {
            let task = TaskId { role: RoleName::from(role.as_str()), index };
            let task_dir = dir.logs().join(&role).join(index.to_string());
            let mut attempts = numbers(&task_dir);
            attempts.sort_unstable();
            found.insert(task, attempts);
        }
    }
    found
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn numbers(dir: &Path) -> Vec<u32> {
    names(dir).iter().filter_map(|name| name.parse().ok()).collect()
}
