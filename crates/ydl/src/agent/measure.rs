//! Measures the resource usage of a container: its processes and GPUs.

use std::io;
use std::time::{Duration, Instant};

use ydl_os::nvml::nvml;
use ydl_os::proc_tree::Tree;
use ydl_proto::usage::{GpuUsage, Usage};

const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Selects the processes whose memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryOf {
    /// All processes, as YARN counts them.
    All,
    /// Descendants started by others than the first process: excludes itself and its own children.
    Programs,
}

/// Measures one process and all of its descendants.
#[derive(Debug)]
pub struct Meter {
    root: u32,
    memory_of: MemoryOf,
    /// Additional process tree: the shim in a container.
    outside: Option<u32>,
    gpus: Vec<String>,
    peak_bytes: u64,
    cpu_millis: u64,
    /// Start of the present interval, and the usage at that time.
    since: Option<(Instant, u64)>,
    cpu_percent: u32,
    /// Time since when a process has been seen stopped by a signal.
    halted: Option<Instant>,
}

impl Meter {
    /// `visible_devices` is the program's `CUDA_VISIBLE_DEVICES`. Its numbers count devices in the order of the PCI
    /// bus, so the program should see `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    pub fn new(root: u32, visible_devices: Option<&str>) -> Meter {
        let gpus = devices(visible_devices.unwrap_or_default());
        Meter {
            root,
            memory_of: MemoryOf::All,
            outside: None,
            gpus,
            peak_bytes: 0,
            cpu_millis: 0,
            since: None,
            cpu_percent: 0,
            halted: None,
        }
    }

    /// Excludes the memory of the first process and of its own children: an agent and its shims, which are not charged
    /// to the task.
    #[must_use]
    pub(crate) fn of_programs(self) -> Meter {
        Meter { memory_of: MemoryOf::Programs, ..self }
    }

    /// Resets the peak for a new program.
    pub fn begin(&mut self) {
        self.peak_bytes = 0;
        self.halted = None;
    }

    /// Sets the additional process tree of the program.
    pub fn outside(&mut self, process: Option<u32>) {
        self.outside = process;
    }

    /// Returns the peak memory since the program started.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns how long a process has been seen stopped by a signal. Processes under a debugger are excluded.
    pub(crate) fn halted(&self) -> Duration {
        self.halted.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Samples all processes; cheap enough for once a second.
    pub fn sample(&mut self) -> io::Result<Usage> {
        let tree = Tree::below(self.root)?;
        // Processor time includes the shim, which accounts for exited processes.
        let mut sum = tree.sum(self.root);
        if self.memory_of == MemoryOf::Programs {
            sum.rss_bytes = tree.sum_of_programs(self.root).rss_bytes;
        }
        let mut halted = tree.has_halted(self.root);
        if let Some(outside) = self.outside {
            let tree = Tree::below(outside)?;
            let beside = tree.sum(outside);
            sum.rss_bytes += beside.rss_bytes;
            sum.cpu_ticks += beside.cpu_ticks;
            halted |= tree.has_halted(outside);
        }
        let now = Instant::now();
        self.halted = halted.then(|| self.halted.unwrap_or(now));
        let millis = sum.cpu_ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second();
        // The time of a child is missing between its exit and its reaping.
        self.cpu_millis = self.cpu_millis.max(millis);
        let (began, used) = *self.since.get_or_insert((now, self.cpu_millis));
        let elapsed = now.duration_since(began);
        // The kernel counts in hundredths of a second: over a shorter interval the share is meaningless.
        if elapsed >= INTERVAL_MIN {
            let share = (self.cpu_millis - used) * 100 / elapsed.as_millis() as u64;
            self.cpu_percent = u32::try_from(share).unwrap_or(u32::MAX);
            self.since = Some((now, self.cpu_millis));
        }
        self.peak_bytes = self.peak_bytes.max(sum.rss_bytes);
        Ok(Usage {
            memory_bytes: sum.rss_bytes,
            memory_peak_bytes: self.peak_bytes,
            cpu_millis_total: self.cpu_millis,
            cpu_percent: self.cpu_percent,
            gpus: self.gpus.iter().filter_map(|device| gpu(device)).collect(),
            download: None,
        })
    }
}

fn devices(visible: &str) -> Vec<String> {
    // CUDA ignores all entries after the first invalid one, -1 above all.
    visible
        .split(',')
        .map(str::trim)
        .take_while(|name| !name.is_empty() && *name != "-1" && *name != "NoDevFiles")
        .map(str::to_owned)
        .collect()
}

fn gpu(device: &str) -> Option<GpuUsage> {
    let nvml = nvml()?;
    let handle = match device.parse() {
        Ok(index) => nvml.device_by_index(index),
        Err(_) => nvml.device_by_uuid(device),
    }
    .ok()?;
    // A GPU partition (MIG) reports its memory but no utilization.
    let memory = handle.memory_info().ok()?;
    let busy_percent = handle.utilization_rates().map_or(0, |rates| rates.gpu);
    Some(GpuUsage {
        device: device.to_owned(),
        busy_percent,
        memory_bytes: memory.used,
        memory_total_bytes: memory.total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_cuda_reads_them() {
        assert_eq!(devices("0, 2,GPU-1f"), ["0", "2", "GPU-1f"]);
        assert_eq!(devices("1,-1,0"), ["1"]);
        for none in ["", "-1", "NoDevFiles", " "] {
            assert!(devices(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn this_process_uses_memory_and_processor_time() {
        let mut meter = Meter::new(std::process::id(), None);
        let first = meter.sample().unwrap();
        assert!(first.memory_bytes > 0);
        assert_eq!((first.cpu_percent, first.gpus.len()), (0, 0));
        let (mut usage, mut spins) = (first.clone(), 0_u64);
        while usage.cpu_percent == 0 {
            spins = std::hint::black_box(spins + 1);
            if spins % 1_000_000 == 0 {
                usage = meter.sample().unwrap();
            }
        }
        assert!(usage.cpu_millis_total > first.cpu_millis_total);
        assert!(usage.memory_peak_bytes >= usage.memory_bytes);
    }

    #[test]
    fn an_absent_gpu_is_not_reported() {
        let mut meter = Meter::new(std::process::id(), Some("GPU-00000000-no-such-device"));
        assert_eq!(meter.sample().unwrap().gpus, []);
    }

    #[test]
    fn an_ended_process_uses_nothing() {
        assert_eq!(Meter::new(u32::MAX, None).sample().unwrap(), Usage::default());
    }
}
