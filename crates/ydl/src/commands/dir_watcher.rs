//! Directory change notifications from the kernel (inotify).

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};
use std::{io, mem::MaybeUninit, path::Path, sync::Arc, thread, time::Duration};
use tokio::sync::mpsc;

/// Capacity of the queue of changes. When it is full, further changes wait in the kernel's own queue.
const QUEUE_MAX: usize = 16;
/// Batching delay for changes: a task that prints line by line would otherwise wake the client for each line.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Interval at which the thread checks that the receiver still exists.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Changes reported by a [`DirWatcher`].
#[derive(Debug)]
pub(crate) enum DirChanges {
    /// The directories of these watches changed.
    Some(Vec<i32>),
    /// Any directory may have changed: the kernel's queue overflowed.
    All,
}

/// Watches directories from a thread of its own, because reading the kernel's queue blocks.
#[derive(Debug)]
pub(crate) struct DirWatcher {
    fd: Arc<OwnedFd>,
    changes: mpsc::Receiver<DirChanges>,
}

impl DirWatcher {
    pub(crate) fn new() -> io::Result<DirWatcher> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let fd = Arc::new(inotify::init(flags)?);
        let (sender, changes) = mpsc::channel(QUEUE_MAX);
        let inotify_fd = fd.clone();
        thread::Builder::new()
            .name("changes".into())
            .spawn(move || read_events(&inotify_fd, &sender))?;
        Ok(DirWatcher { fd, changes })
    }

    /// Watches a directory. Returns the number that identifies it in [`DirChanges`].
    pub(crate) fn watch(&self, dir: &Path) -> io::Result<i32> {
        let flags =
            WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(&*self.fd, dir, flags)?)
    }

    /// Stops watching a directory.
    pub(crate) fn unwatch(&self, watch: i32) {
        // The watch of a removed directory no longer exists.
        let _ = inotify::remove_watch(&*self.fd, watch);
    }

    /// Returns the next changes; `None` once the thread has stopped.
    pub(crate) async fn next(&mut self) -> Option<DirChanges> {
        self.changes.recv().await
    }
}

fn read_events(fd: &OwnedFd, sender: &mpsc::Sender<DirChanges>) {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    while !sender.is_closed() {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&CHECK_INTERVAL)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => thread::sleep(BATCH_DELAY),
            Err(_) => return,
        }
        let mut changed = DirChanges::Some(Vec::new());
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        while let Ok(event) = reader.next() {
            match &mut changed {
                _ if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    changed = DirChanges::All
                }
                DirChanges::Some(watches) if !watches.contains(&event.wd()) => {
                    watches.push(event.wd());
                }
                DirChanges::Some(_) | DirChanges::All => {}
            }
        }
        if sender.blocking_send(changed).is_err() {
            return;
        }
    }
}
