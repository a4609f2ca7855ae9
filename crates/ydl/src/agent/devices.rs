//! GPUs of a task on a cluster: reserves devices of the node for this container.

use super::bootstrap::GpuRequest;
use crate::gpus::{self, Device, Pool};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Timeout of the wait for devices: their previous owner may be exiting. After that, another node is better.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Devices reserved for this container while its agent lives.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Holds the reservations.
    pool: Pool,
    /// Environment variables for the program.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Set if there are too few devices.
    pub(super) short: Option<String>,
}

impl Devices {
    /// Reserves devices for a task.
    pub(super) async fn find(wanted: Option<GpuRequest>) -> Devices {
        match wanted {
            None => Devices::default(),
            Some(GpuRequest { count, counted: false }) => {
                Devices::among(gpus::devices(), count, WAIT_MAX).await
            }
            Some(GpuRequest { count, .. }) => {
                let set = |name| std::env::var_os(name).is_some();
                if count == 0 || set(gpus::VISIBLE) || set("NVIDIA_VISIBLE_DEVICES") {
                    return Devices::default();
                }
                let mut found = Devices::among(gpus::devices(), count, WAIT_MAX).await;
                // The cluster has assigned them: devices that cannot be identified here may still be right.
                if let Some(short) = found.short.take() {
                    tracing::warn!("using the GPUs as the cluster presents them: {short}");
                }
                found
            }
        }
    }

    async fn among(all: Vec<Device>, count: u32, timeout: Duration) -> Devices {
        let end = Instant::now() + timeout;
        let mut devices = Devices { pool: Pool::new(all), ..Devices::default() };
        let names = loop {
            match devices.pool.take(count) {
                Ok(names) => break names,
                Err(short) if Instant::now() >= end || devices.pool.is_empty() => {
                    devices.short = Some(short.to_string());
                    return devices;
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        };
        // A task that requests no GPU sees none.
        if !devices.pool.is_empty() {
            devices.variables = gpus::variables(&names).into();
        }
        devices
    }

    /// Returns the value of `CUDA_VISIBLE_DEVICES`, set here or inherited by this agent.
    pub(super) fn visible(&self) -> Option<String> {
        let own = self.variables.first().map(|(_, value)| value.clone());
        own.or_else(|| std::env::var(gpus::VISIBLE).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn devices(name: &str, count: u32) -> Vec<Device> {
        let own = |n| Device::counted(&format!("agent-{}-{name}-{n}", std::process::id()));
        (0..count).map(own).collect()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_reserved_device_is_waited_for_until_the_timeout() {
        let one = Devices::among(devices("wait", 1), 1, LONG).await;
        assert_eq!(one.short, None);
        let two = Devices::among(devices("wait", 1), 1, Duration::ZERO).await;
        let expected = "1 GPU needed; the node has 1, 1 in use by other tasks";
        assert_eq!(two.short.as_deref(), Some(expected));
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
    async fn a_task_without_gpus_sees_none_and_a_node_without_gpus_fails_at_once() {
        let none = Devices::among(devices("none", 1), 0, LONG).await;
        assert_eq!(none.variables[0].1, "");
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(short) = pin!(Devices::among(Vec::new(), 1, LONG)).poll(&mut context)
        else {
            panic!("it waits");
        };
        let expected = "1 GPU needed; the node has none";
        assert_eq!(short.short.as_deref(), Some(expected));
    }
}
