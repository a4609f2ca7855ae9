//! Directory change notifications from the kernel (inotify).

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};
use std::{io, mem::MaybeUninit, path::Path, sync::Arc, thread, time::Duration};
use tokio::sync::mpsc;

/// Changes that wait to be looked at. When there are more, the kernel's own queue holds them.
const ROOM: usize = 16;
/// Batching delay for changes: a task that prints line by line would otherwise wake the client for each line.
const PACE: Duration = Duration::from_millis(10);
/// Interval at which the thread checks that the receiver still exists.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Changes reported by a [`DirWatcher`].
#[derive(Debug)]
pub enum DirChanges {
    /// These watches.
    Some(Vec<i32>),
    /// So much that the kernel has lost count.
    All,
}

/// Watches directories from a thread of its own, because reading what the kernel says may wait.
#[derive(Debug)]
pub struct DirWatcher {
    fd: Arc<OwnedFd>,
    told: mpsc::Receiver<DirChanges>,
}

impl DirWatcher {
    pub fn new() -> io::Result<DirWatcher> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let fd = Arc::new(inotify::init(flags)?);
        let (tell, told) = mpsc::channel(ROOM);
        let own = fd.clone();
        thread::Builder::new().name("changes".into()).spawn(move || listen(&own, &tell))?;
        Ok(DirWatcher { fd, told })
    }

    /// Watches a directory; the number stands for it in what is told.
    pub fn watch(&self, dir: &Path) -> io::Result<i32> {
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(&*self.fd, dir, flags)?)
    }

    /// Forgets a directory.
    pub fn forget(&self, watch: i32) {
        // One that is gone need not be forgotten.
        let _ = inotify::remove_watch(&*self.fd, watch);
    }

    /// Returns the next changes; `None` once the thread has stopped.
    pub async fn next(&mut self) -> Option<DirChanges> {
        self.told.recv().await
    }
}

fn listen(fd: &OwnedFd, tell: &mpsc::Sender<DirChanges>) {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    while !tell.is_closed() {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => thread::sleep(PACE),
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
        if tell.blocking_send(changed).is_err() {
            return;
        }
    }
}
