//! The GPUs of this node, each assigned to one task at a time.
//!
//! * `discovery`: the devices, and foreign processes on them. * `lock`: exclusive locks.
//!
//! Both the master of jobs on this machine and an agent on a cluster that does not assign GPUs lock each device they
//! use. Processes of all users see the same locks.

mod discovery;
mod lock;

pub use discovery::{Device, devices};

use lock::DeviceLock;
use std::collections::BTreeMap;

/// Devices available for assignment, and those locked by this pool.
#[derive(Debug, Default)]
pub struct Pool {
    devices: Vec<Device>,
    taken: BTreeMap<String, DeviceLock>,
}

impl Pool {
    /// Creates a pool with no device locked.
    pub fn new(devices: Vec<Device>) -> Pool {
        let taken = BTreeMap::new();
        Pool { devices, taken }
    }

    /// Locks that many free devices and returns their names for CUDA.
    pub fn take(&mut self, count: u32) -> Result<Vec<String>, GpuShortage> {
        let mut claimed: Vec<(String, DeviceLock)> = Vec::new();
        let mut short =
            GpuShortage { wanted: count, there: self.devices.len(), ..GpuShortage::default() };
        for device in &self.devices {
            if claimed.len() == count as usize {
                break;
            }
            if self.taken.contains_key(&device.name) {
                short.claimed += 1;
                continue;
            }
            match DeviceLock::take(&device.key) {
                // Checked only after the lock: otherwise the process may belong to a task that has just started.
                Ok(Some(claim)) => match device.stranger() {
                    None => claimed.push((device.name.clone(), claim)),
                    Some(pid) => short.strangers.push((device.name.clone(), pid)),
                },
                Ok(None) => short.claimed += 1,
                Err(error) => {
                    tracing::warn!("cannot lock GPU `{}`: {error}", device.name);
                    short.claimed += 1;
                }
            }
        }
        if claimed.len() < count as usize {
            return Err(short);
        }
        let names = claimed.iter().map(|(name, _)| name.clone()).collect();
        self.taken.extend(claimed);
        Ok(names)
    }

    /// Releases devices.
    pub fn give_back(&mut self, names: &[String]) {
        for name in names {
            self.taken.remove(name);
        }
    }

    /// Returns true if there is no device at all.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// Reason why devices are not available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuShortage {
    wanted: u32,
    there: usize,
    /// Number of devices locked by other tasks.
    claimed: usize,
    /// Devices in use without a lock, and the process that uses them.
    strangers: Vec<(String, u32)>,
}

impl std::fmt::Display for GpuShortage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        let (wanted, there) = (self.wanted as usize, self.there);
        write!(out, "{wanted} GPU{} needed, and ", s(wanted))?;
        if there == 0 {
            return write!(out, "the node has none");
        }
        write!(out, "of the node's {there} ")?;
        match self.claimed {
            0 => write!(out, "none is another task's")?,
            1 => write!(out, "1 is another task's")?,
            n => write!(out, "{n} are other tasks'")?,
        }
        for (device, pid) in &self.strangers {
            write!(out, ", and process {pid}, which is not a task, uses GPU `{device}`")?;
        }
        Ok(())
    }
}

/// Variable that selects the devices visible to CUDA.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Returns the variables that restrict a program to these devices.
pub fn variables(names: &[String]) -> [(&'static str, String); 2] {
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
        let said = "1 GPU needed, and of the node's 2 2 are other tasks'";
        assert_eq!(short.to_string(), said);
        one.give_back(&first);
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
        assert_eq!(none.to_string(), "2 GPUs needed, and the node has none");
        let short = GpuShortage {
            wanted: 1,
            there: 1,
            claimed: 0,
            strangers: vec![("0".to_owned(), 4711)],
        };
        let said = "1 GPU needed, and of the node's 1 none is another task's, and on GPU `0` process 4711, which is no \
                    task, computes";
        assert_eq!(short.to_string(), said);
    }
}
