//! The GPUs of this node, each assigned to one task at a time.
//!
//! * `discovery`: the devices, and foreign processes on them. * `lock`: exclusive locks.
//!
//! Both the master of jobs on this machine and an agent on a cluster that does not assign GPUs lock each device they
//! use. Processes of all users see the same locks.

mod discovery;
mod lock;

pub(crate) use discovery::{Device, devices};

use lock::DeviceLock;
use std::collections::BTreeMap;

/// Devices available for assignment, and those locked by this pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    devices: Vec<Device>,
    taken: BTreeMap<String, DeviceLock>,
}

impl Pool {
    /// Creates a pool with no device locked.
    pub(crate) fn new(devices: Vec<Device>) -> Pool {
        let taken = BTreeMap::new();
        Pool { devices, taken }
    }

    /// Locks that many free devices and returns their names for CUDA.
    pub(crate) fn take(&mut self, count: u32) -> Result<Vec<String>, GpuShortage> {
        let mut locks: Vec<(String, DeviceLock)> = Vec::new();
        let mut short =
            GpuShortage { wanted: count, present: self.devices.len(), ..GpuShortage::default() };
        for device in &self.devices {
            if locks.len() == count as usize {
                break;
            }
            if self.taken.contains_key(&device.name) {
                short.locked += 1;
                continue;
            }
            match DeviceLock::take(&device.key) {
                // Checked only after the lock: otherwise the process may belong to a task that has just started.
                Ok(Some(lock)) => match device.foreign_process() {
                    None => locks.push((device.name.clone(), lock)),
                    Some(pid) => short.foreign.push((device.name.clone(), pid)),
                },
                Ok(None) => short.locked += 1,
                Err(error) => {
                    tracing::warn!("cannot lock GPU `{}`: {error}", device.name);
                    short.locked += 1;
                }
            }
        }
        if locks.len() < count as usize {
            return Err(short);
        }
        let names = locks.iter().map(|(name, _)| name.clone()).collect();
        self.taken.extend(locks);
        Ok(names)
    }

    /// Releases devices.
    pub(crate) fn release(&mut self, names: &[String]) {
        for name in names {
            self.taken.remove(name);
        }
    }

    /// Returns true if there is no device at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// Reason why devices are not available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuShortage {
    wanted: u32,
    present: usize,
    /// Number of devices locked by other tasks.
    locked: usize,
    /// Devices in use without a lock, and the process that uses them.
    foreign: Vec<(String, u32)>,
}

impl std::fmt::Display for GpuShortage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        let (needed, present) = (self.wanted as usize, self.present);
        write!(out, "{needed} GPU{} needed; the node has ", s(needed))?;
        if present == 0 {
            return write!(out, "none");
        }
        write!(out, "{present}")?;
        if self.locked > 0 {
            write!(out, ", {} in use by other tasks", self.locked)?;
        }
        for (device, pid) in &self.foreign {
            write!(out, ", GPU `{device}` in use by process {pid}, which is not a task")?;
        }
        Ok(())
    }
}

/// Variable that selects the devices visible to CUDA.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Returns the variables that restrict a program to these devices.
pub(crate) fn variables(names: &[String]) -> [(&'static str, String); 2] {
    [
        (VISIBLE, names.join(",")),
        // Otherwise CUDA numbers the fastest device first, unlike NVML.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates devices unique to one test: locks are visible to the whole machine.
    fn pool(name: &str, count: u32) -> Pool {
        let own = |n| Device::counted(&format!("test-{}-{name}-{n}", std::process::id()));
        Pool::new((0..count).map(own).collect())
    }

    #[test]
    fn two_pools_lock_different_devices() {
        let (mut one, mut two) = (pool("both", 2), pool("both", 2));
        let first = one.take(1).expect("a device");
        let second = two.take(1).expect("the other");
        assert_ne!(first, second);
        let short = two.take(1).expect_err("none is left");
        assert_eq!(short.to_string(), "1 GPU needed; the node has 2, 2 in use by other tasks");
        one.release(&first);
        assert_eq!(two.take(1).expect("given back"), first);
    }

    #[test]
    fn a_pool_locks_all_requested_devices_or_none() {
        let (mut one, mut two) = (pool("all", 3), pool("all", 3));
        one.take(1).expect("a device");
        two.take(3).expect_err("two are left");
        assert_eq!(two.take(2).expect("both are still there").len(), 2);
    }

    #[test]
    fn a_dropped_pool_releases_its_devices() {
        let taken = pool("dropped", 1).take(1).expect("a device");
        assert_eq!(pool("dropped", 1).take(1).expect("free again"), taken);
    }

    #[test]
    fn a_shortage_names_its_reason() {
        let none = Pool::new(Vec::new()).take(2).expect_err("none");
        assert_eq!(none.to_string(), "2 GPUs needed; the node has none");
        let short =
            GpuShortage { wanted: 1, present: 1, locked: 0, foreign: vec![("0".to_owned(), 4711)] };
        assert_eq!(
            short.to_string(),
            "1 GPU needed; the node has 1, GPU `0` in use by process 4711, which is not a task"
        );
    }
}
