//! The GPUs of a task on a cluster: which of its node's it may use, and nobody else meanwhile.

use super::bootstrap::GpuRequest;
use crate::gpus::{self, Device, Pool};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long devices are waited for: whoever had them last may be just leaving. If it takes longer another node is better.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// Devices that are this container's as long as its agent lives.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// What holds them.
    pool: Pool,
    /// What the program is shown.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Why there are too few.
    pub(super) short: Option<String>,
}

impl Devices {
    /// Finds devices for a task.
    pub(super) async fn find(wanted: Option<GpuRequest>) -> Devices {
        match wanted {
            None => Devices::default(),
            Some(GpuRequest { count, counted: false }) => {
                Devices::among(gpus::devices(), count, PATIENCE).await
            }
            Some(GpuRequest { count, .. }) => {
                let set = |name| std::env::var_os(name).is_some();
                if count == 0 || set(gpus::VISIBLE) || set("NVIDIA_VISIBLE_DEVICES") {
                    return Devices::default();
                }
                let mut found = Devices::among(gpus::devices(), count, PATIENCE).await;
                // The cluster has counted them: what cannot be told apart here may still be right there.
                if let Some(short) = found.short.take() {
                    tracing::warn!("what the cluster shows of its GPUs is used as it is: {short}");
                }
                found
            }
        }
    }

    async fn among(all: Vec<Device>, count: u32, patience: Duration) -> Devices {
        let end = Instant::now() + patience;
        let mut devices = Devices { pool: Pool::new(all), ..Devices::default() };
        let names = loop {
            match devices.pool.take(count) {
                Ok(names) => break names,
                Err(short) if Instant::now() >= end || devices.pool.is_empty() => {
                    devices.short = Some(short.to_string());
                    return devices;
                }
                Err(_) => sleep(PAUSE).await,
            }
        };
        // Who has asked for none sees none.
        if !devices.pool.is_empty() {
            devices.variables = gpus::variables(&names).into();
        }
        devices
    }

    /// As `CUDA_VISIBLE_DEVICES` says, here or from whoever has started this agent.
    pub(super) fn visible(&self) -> Option<String> {
        let own = self.variables.first().map(|(_, value)| value.clone());
        own.or_else(|| std::env::var(gpus::VISIBLE).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(name: &str, count: u32) -> Vec<Device> {
        let own = |n| Device::counted(&format!("agent-{}-{name}-{n}", std::process::id()));
        (0..count).map(own).collect()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_device_is_waited_for_and_then_given_up() {
        let one = Devices::among(devices("wait", 1), 1, LONG).await;
        assert_eq!(one.short, None);
        let two = Devices::among(devices("wait", 1), 1, Duration::ZERO).await;
        let said = "1 GPU needed, and of the node's 1 1 is another task's";
        assert_eq!(two.short.as_deref(), Some(said));
        let waiting = tokio::spawn(Devices::among(devices("wait", 1), 1, LONG));
        tokio::task::yield_now().await;
        drop(one);
        let three = waiting.await.expect("found");
        assert_eq!(three.short, None);
        let (name, value) = &three.variables[0];
        assert_eq!(*name, "CUDA_VISIBLE_DEVICES");
        assert_eq!(*value, devices("wait", 1)[0].name);
    }

    #[tokio::test]
    async fn who_needs_none_sees_none_and_a_node_without_any_is_not_waited_for() {
        let none = Devices::among(devices("none", 1), 0, LONG).await;
        assert_eq!(none.variables[0].1, "");
        let begun = Instant::now();
        let short = Devices::among(Vec::new(), 1, LONG).await;
        let said = "1 GPU needed, and the node has none";
        assert_eq!(short.short.as_deref(), Some(said));
        assert!(begun.elapsed() < LONG);
    }
}
