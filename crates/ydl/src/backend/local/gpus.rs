//! GPUs of this machine, handed out to one task at a time, over all jobs of the user.
//!
//! Each device has a lock file; a lock dies with the master that holds it, so a crash leaks none.

use crate::{jobs::JobDir, os::nvml::nvml};
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(super) struct Gpus {
    locks: PathBuf,
    devices: Vec<u32>,
    taken: BTreeMap<u32, File>,
}

/// How many GPUs this machine has; none where there is no driver.
pub fn count() -> u32 {
    nvml()
        .and_then(|nvml| nvml.device_count().ok())
        .unwrap_or(0)
}

impl Gpus {
    pub(super) fn new(job: &JobDir, devices: &[u32]) -> Gpus {
        // Beside the jobs, because all of them share the devices.
        let locks = job
            .path()
            .parent()
            .and_then(Path::parent)
            .unwrap_or(job.path())
            .join("gpus");
        Gpus {
            locks,
            devices: devices.to_vec(),
            taken: BTreeMap::new(),
        }
    }

    /// So many devices that nobody else has, or none at all.
    pub(super) fn take(&mut self, count: u32) -> Option<Vec<u32>> {
        let mut locked = Vec::new();
        for device in &self.devices {
            if locked.len() == count as usize {
                break;
            }
            if self.taken.contains_key(device) {
                continue;
            }
            if let Ok(Some(lock)) = self.lock(*device) {
                locked.push((*device, lock));
            }
        }
        if locked.len() < count as usize {
            return None;
        }
        let devices = locked.iter().map(|(device, _)| *device).collect();
        self.taken.extend(locked);
        Some(devices)
    }

    pub(super) fn give_back(&mut self, devices: &[u32]) {
        for device in devices {
            self.taken.remove(device);
        }
    }

    /// What a task's programs may see. A machine without GPUs says nothing; a task without any sees none.
    pub(super) fn visible(&self, devices: &[u32]) -> Option<String> {
        if self.devices.is_empty() {
            return None;
        }
        let names: Vec<_> = devices.iter().map(u32::to_string).collect();
        Some(names.join(","))
    }

    fn lock(&self, device: u32) -> io::Result<Option<File>> {
        std::fs::create_dir_all(&self.locks)?;
        let path = self.locks.join(format!("{device}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
