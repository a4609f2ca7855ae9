//! Resources of this machine that a job may use.

use crate::gpus::{Device, devices};
use std::{fs, thread};
use ydl_jobfile::size_mib;
use ydl_os::report::Report;
use ydl_proto::files::LocalResources;

/// Virtual cores per processor core. They are shares, because most tasks wait for each other much of the time.
const VCORES_PER_CORE: u32 = 4;
/// Memory assumed where the kernel reports none.
const MEMORY_MIB_UNKNOWN: u64 = 4096;

/// Parses `--resources`; the default is the whole machine.
pub(crate) fn local_resources(flag: Option<&str>) -> Result<LocalResources, Report> {
    let (mut memory, mut vcores, mut gpus) = (None, None, None);
    for part in flag.unwrap_or_default().split(',').filter(|part| !part.trim().is_empty()) {
        let invalid = |what: String| {
            Report::bad_input(format!("--resources {part}: {what}"))
                .hint("write `--resources vcores=4,memory=8GiB,gpus=0`")
        };
        let Some((name, value)) = part.split_once('=') else {
            return Err(invalid("missing `=`".into()));
        };
        let count = || {
            let number = value.trim().parse::<u32>();
            number.map_err(|_| invalid(format!("`{value}` is not a count")))
        };
        match name.trim() {
            "memory" => memory = Some(size_mib(value).map_err(|(what, _)| invalid(what))?),
            "vcores" => vcores = Some(count()?),
            "gpus" => gpus = Some(count()?),
            other => return Err(invalid(format!("unknown resource `{other}`"))),
        }
    }
    Ok(LocalResources {
        memory_mib: memory.unwrap_or_else(memory_mib),
        vcores: vcores.unwrap_or_else(machine_vcores),
        gpus: select_gpus(gpus)?,
    })
}

fn select_gpus(count: Option<u32>) -> Result<Vec<String>, Report> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let all = visible_gpus(devices(), visible.as_deref());
    match count {
        Some(n) if n as usize > all.len() => {
            Err(Report::bad_input(format!("--resources gpus={n}: this machine has {}", all.len())))
        }
        Some(n) => Ok(all.into_iter().take(n as usize).collect()),
        None => Ok(all),
    }
}

/// Filters devices by the visible ones: a scheduler or an administrator may have assigned only a part.
fn visible_gpus(all: Vec<Device>, visible: Option<&str>) -> Vec<String> {
    let Some(visible) = visible else {
        return all.into_iter().map(|device| device.name).collect();
    };
    let find = |name: &str| all.iter().find(|device| device.name == name || device.key == name);
    // CUDA ignores the first unknown device and everything after it.
    let mut names: Vec<String> = Vec::new();
    for device in visible.split(',').map_while(|name| find(name.trim())) {
        if !names.contains(&device.name) {
            names.push(device.name.clone());
        }
    }
    names
}

fn machine_vcores() -> u32 {
    let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
    cores.saturating_mul(VCORES_PER_CORE)
}

fn memory_mib() -> u64 {
    meminfo_mib("MemTotal").unwrap_or(MEMORY_MIB_UNKNOWN)
}

/// Returns a field of `/proc/meminfo` in MiB.
pub(super) fn meminfo_mib(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_devices_are_used() {
        let all = || -> Vec<Device> { (0..4).map(|n| Device::counted(&format!("d{n}"))).collect() };
        let used = |visible| visible_gpus(all(), visible);
        assert_eq!(used(None), ["d0", "d1", "d2", "d3"]);
        assert_eq!(used(Some("d2, d0,d2")), ["d2", "d0"]);
        assert_eq!(used(Some("d1,-1,d0")), ["d1"]);
        for none in ["", "-1", "d9", "GPU-1f"] {
            assert!(used(Some(none)).is_empty(), "{none}");
        }
    }
}
