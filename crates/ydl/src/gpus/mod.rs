//! The GPUs of this node, each of them one task's at a time.
//!
//! * `found`: which devices there are, and whether a stranger computes on one. * `claim`: who has which.
//!
//! Whoever wants a device claims it, whether it is the master of jobs on this machine or an agent in a container of a
//! cluster that does not count GPUs itself: all of them, whoever their user is, see the same claims.

mod discovery;
mod lock;

pub use discovery::{Device, devices};

use lock::DeviceLock;
use std::collections::BTreeMap;

/// The devices that somebody may hand out, and those it has claimed.
#[derive(Debug, Default)]
pub struct Pool {
    devices: Vec<Device>,
    taken: BTreeMap<String, DeviceLock>,
}

impl Pool {
    /// Of these devices, none is claimed yet.
    pub fn new(devices: Vec<Device>) -> Pool {
        let taken = BTreeMap::new();
        Pool { devices, taken }
    }

    /// So many devices that nobody else has, or why not. Names as CUDA wants them.
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
                // Asked only of a device that is claimed: otherwise it may be a task's that has just begun.
                Ok(Some(claim)) => match device.stranger() {
                    None => claimed.push((device.name.clone(), claim)),
                    Some(pid) => short.strangers.push((device.name.clone(), pid)),
                },
                Ok(None) => short.claimed += 1,
                Err(error) => {
                    tracing::warn!("cannot claim GPU `{}`: {error}", device.name);
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

    /// Others may have them from now on.
    pub fn give_back(&mut self, names: &[String]) {
        for name in names {
            self.taken.remove(name);
        }
    }

    /// Whether there is any device at all.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// Why devices could not be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuShortage {
    wanted: u32,
    there: usize,
    /// So many are other tasks'.
    claimed: usize,
    /// On these, somebody computes who has claimed nothing: the device and the process.
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
            write!(out, ", and on GPU `{device}` process {pid}, which is no task, computes")?;
        }
        Ok(())
    }
}

/// The variable by which CUDA's programs know their devices.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// What makes a program see these devices and no others.
pub fn variables(names: &[String]) -> [(&'static str, String); 2] {
    [
        (VISIBLE, names.join(",")),
        // Otherwise CUDA counts the quickest first, and the management library does not.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that no other test has: claims are seen by the whole machine.
    fn pool(name: &str, count: u32) -> Pool {
        let own = |n| Device::counted(&format!("test-{}-{name}-{n}", std::process::id()));
        Pool::new((0..count).map(own).collect())
    }

    #[test]
    fn two_that_want_one_device_each_have_different_ones() {
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
    fn all_that_are_wanted_or_none() {
        let (mut one, mut two) = (pool("all", 3), pool("all", 3));
        one.take(1).expect("a device");
        two.take(3).expect_err("two are left");
        assert_eq!(two.take(2).expect("both are still there").len(), 2);
    }

    #[test]
    fn what_is_dropped_is_free() {
        let taken = pool("dropped", 1).take(1).expect("a device");
        assert_eq!(pool("dropped", 1).take(1).expect("free again"), taken);
    }

    #[test]
    fn why_there_is_none_is_said() {
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
