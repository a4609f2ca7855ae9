//! Discovers the devices of this node.

use nvml_wrapper::Device as Handle;
use ydl_os::{env, nvml::nvml};

/// Maximum number of devices.
const DEVICES_MAX: usize = 256;
/// Maximum length of a device name.
const NAME_MAX: usize = 64;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Name for `CUDA_VISIBLE_DEVICES`.
    pub name: String,
    /// Key of its lock: the same for all users of the machine.
    pub key: String,
}

impl Device {
    /// Creates a device from its name.
    pub(crate) fn counted(name: &str) -> Device {
        let handle = handle(name).and_then(|handle| handle.uuid().ok());
        Device { key: handle.unwrap_or_else(|| name.to_owned()), name: name.to_owned() }
    }

    /// Returns a process that computes on the device, if there is one.
    pub(super) fn foreign_process(&self) -> Option<u32> {
        let running = handle(&self.name)?.running_compute_processes().ok()?;
        running.first().map(|process| process.pid)
    }
}

fn handle(name: &str) -> Option<Handle<'static>> {
    let nvml = nvml()?;
    match name.parse() {
        Ok(index) => nvml.device_by_index(index),
        Err(_) => nvml.device_by_uuid(name),
    }
    .ok()
}

/// Returns this node's devices: those configured by its administrator (`YDL_GPUS=0,1`), or otherwise those found by
/// NVML.
pub(crate) fn devices() -> Vec<Device> {
    if let Ok(list) = std::env::var(env::GPUS) {
        return named(&list);
    }
    let count = nvml().and_then(|nvml| nvml.device_count().ok());
    let all = (0..count.unwrap_or(0)).filter(|index| is_open(*index));
    all.map(|index| Device::counted(&index.to_string())).collect()
}

/// Returns true if this process may use the device. Where a cluster isolates GPUs, NVML still counts those of others.
fn is_open(index: u32) -> bool {
    let minor = nvml()
        .and_then(|nvml| nvml.device_by_index(index).ok())
        .and_then(|handle| handle.minor_number().ok());
    let Some(minor) = minor else {
        return false;
    };
    let device = format!("/dev/nvidia{minor}");
    let opened = std::fs::File::options().read(true).write(true).open(device);
    opened.is_ok()
}

/// Parses a list of devices. An invalid name ends it, as it does for CUDA.
fn named(list: &str) -> Vec<Device> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    let is_valid =
        |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(valid);
    let mut devices: Vec<Device> = Vec::new();
    // A NodeManager before 3.2 accepts no comma in the value of a variable.
    let names = list.split([',', ';']).map(str::trim).take_while(is_valid);
    for name in names.take(DEVICES_MAX) {
        let device = Device::counted(name);
        if !devices.iter().any(|other| other.key == device.key) {
            devices.push(device);
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_list_is_validated() {
        let names = |list| -> Vec<String> { named(list).into_iter().map(|it| it.name).collect() };
        assert_eq!(names("x0, GPU-1f;x0"), ["x0", "GPU-1f"]);
        assert_eq!(names("x1,with space,x2"), ["x1"]);
        assert!(names("").is_empty());
        assert!(names(&"n".repeat(65)).is_empty());
        assert_eq!(named(&(0..999).fold(String::new(), |all, n| format!("{all}y{n},"))).len(), 256);
    }
}
