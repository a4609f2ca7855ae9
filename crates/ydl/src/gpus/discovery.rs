//! The devices of this node.

use nvml_wrapper::Device as Handle;
use ydl_os::{env, nvml::nvml};

/// More than any machine has.
const DEVICES_MAX: usize = 256;
/// More than any device's name needs.
const NAME_MAX: usize = 64;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As `CUDA_VISIBLE_DEVICES` wants it.
    pub name: String,
    /// By which everybody on the machine knows it.
    pub key: String,
}

impl Device {
    /// One that was named rather than found.
    pub fn counted(name: &str) -> Device {
        let handle = handle(name).and_then(|handle| handle.uuid().ok());
        Device { key: handle.unwrap_or_else(|| name.to_owned()), name: name.to_owned() }
    }

    /// A process that computes on it, if one does.
    pub(super) fn stranger(&self) -> Option<u32> {
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

/// What this node has: what its administrator says (`YDL_GPUS=0,1`), or otherwise what NVIDIA's library finds.
pub fn devices() -> Vec<Device> {
    if let Ok(said) = std::env::var(env::GPUS) {
        return named(&said);
    }
    let count = nvml().and_then(|nvml| nvml.device_count().ok());
    let all = (0..count.unwrap_or(0)).filter(|index| is_open(*index));
    all.map(|index| Device::counted(&index.to_string())).collect()
}

/// Whether this process may use it. Where a cluster walls GPUs off, the library still counts those of others.
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

/// A list of devices. What cannot be a name ends it, as it does for CUDA.
fn named(list: &str) -> Vec<Device> {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    let good = |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(letter);
    let mut devices: Vec<Device> = Vec::new();
    // A NodeManager before 3.2 takes no comma in the value of a variable.
    let names = list.split([',', ';']).map(str::trim).take_while(good);
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
    fn a_list_of_devices_is_read_with_care() {
        let names = |list| -> Vec<String> { named(list).into_iter().map(|it| it.name).collect() };
        assert_eq!(names("x0, GPU-1f;x0"), ["x0", "GPU-1f"]);
        assert_eq!(names("x1,with space,x2"), ["x1"]);
        assert!(names("").is_empty());
        assert!(names(&"n".repeat(65)).is_empty());
        assert_eq!(named(&(0..999).fold(String::new(), |all, n| format!("{all}y{n},"))).len(), 256);
    }
}
