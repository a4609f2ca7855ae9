//! This machine as a single node: memory, cores and GPUs are counted, containers are plain processes.
//!
//! * `mod.rs` (here): grants, launches and exits.
//! * `capacity`: free resources of the machine.
//! * `limit`: memory limits in the style of a NodeManager.

mod capacity;
mod limit;

pub use capacity::{Misfit, check_fit, oversubscription};

use super::{Backend, Fenced, Launch};
use crate::gpus::{self, Device, GpuShortage, Pool};
use capacity::Capacity;
use limit::Overrun;
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::Ipv4Addr,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{
    process::Command,
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout},
};
use ydl_core::{Asks, ContainerExit, ContainerId, Event, Grant, NodeName, Outcome};
use ydl_net::secret::{Scope, Secret};
use ydl_os::{
    children,
    descriptors::Descriptors,
    env,
    process::{Identity, Signal},
    spawn,
};
use ydl_proto::files::{JobDir, LocalResources};

/// Interval between memory checks. A NodeManager checks every three seconds.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum ratio of the check interval to the duration of a check, which can be long with thousands of
/// processes.
const CHECK_COST_FACTOR: u32 = 20;
/// Time limit for the last processes of a container to disappear after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Address of every task. Tasks are reachable from this machine only.
pub(crate) const HOST_IP: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The local backend of one job.
#[derive(Debug)]
pub struct LocalBackend {
    job: JobDir,
    master: String,
    secret: Arc<Secret>,
    binary: PathBuf,
    capacity: Capacity,
    gpus: Pool,
    /// Reason for waiting for devices.
    shortage: Option<GpuShortage>,
    node: NodeName,
    asks: Asks,
    granted: u64,
    containers: BTreeMap<ContainerId, LocalContainer>,
    /// Events that [`Backend::next`] has not returned yet.
    events: VecDeque<Event>,
    exits: mpsc::UnboundedReceiver<(ContainerId, i32)>,
    exit_tx: mpsc::UnboundedSender<(ContainerId, i32)>,
    next_check: Interval,
    /// Descriptor limit for programs: the limit of this process before it was raised.
    descriptors: Descriptors,
}

#[derive(Debug)]
struct LocalContainer {
    resources: ydl_core::spec::Resources,
    gpus: Vec<String>,
    /// Process of the agent, once it runs. A pid alone is ambiguous: the agent is reaped before its exit is
    /// handled here.
    agent: Option<Identity>,
    /// Exit to report instead of the agent's status, if the container was killed.
    killed_for: Option<ContainerExit>,
}

impl LocalBackend {
    /// Creates a backend for the job in `job`. `master` is the address of its master. With `oversubscribe`, memory and
    /// vcores are not limited.
    pub fn new(
        job: JobDir,
        offer: &LocalResources,
        oversubscribe: bool,
        master: String,
        secret: Arc<Secret>,
    ) -> io::Result<LocalBackend> {
        let (exit_tx, exits) = mpsc::unbounded_channel();
        let mut next_check = interval(CHECK_INTERVAL);
        next_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(LocalBackend {
            gpus: Pool::new(offer.gpus.iter().map(|name| Device::counted(name)).collect()),
            shortage: None,
            capacity: Capacity::new(offer, oversubscribe),
            node: NodeName::from(hostname()),
            binary: std::env::current_exe()?,
            job,
            master,
            secret,
            asks: Asks::default(),
            granted: 0,
            containers: BTreeMap::new(),
            events: VecDeque::from([Event::NodesCounted { nodes: 1 }]),
            exits,
            exit_tx,
            next_check,
            descriptors: Descriptors::raise(),
        })
    }

    /// Grants every ask that fits.
    fn grant(&mut self) {
        let mut grants = Vec::new();
        let reported = self.shortage.take();
        for ask in &mut self.asks.asks {
            while ask.count > 0 && self.capacity.fits(&ask.resources) {
                let gpus = match self.gpus.take(ask.resources.gpus) {
                    Ok(gpus) => gpus,
                    Err(shortage) => {
                        if reported.as_ref() != Some(&shortage) {
                            tracing::info!("a task of role `{}` waits: {shortage}", ask.role);
                        }
                        self.shortage = Some(shortage);
                        break;
                    }
                };
                self.capacity.reserve(&ask.resources);
                self.granted += 1;
                let container = ContainerId::from(format!("container_{:06}", self.granted));
                ask.count -= 1;
                grants.push(Grant {
                    container: container.clone(),
                    role: ask.role.clone(),
                    node: self.node.clone(),
                    resources: ask.resources.clone(),
                });
                let resources = ask.resources.clone();
                let new = LocalContainer { resources, gpus, agent: None, killed_for: None };
                self.containers.insert(container, new);
            }
        }
        if !grants.is_empty() {
            self.events.push_back(Event::Granted { grants });
        }
    }

    fn start(&mut self, container: &ContainerId) -> io::Result<Identity> {
        let Some(held) = self.containers.get(container) else {
            return Err(io::Error::other("the container was released"));
        };
        let dir = self.job.container(container);
        crate::agent::bootstrap::Bootstrap {
            job: self.job.path().to_owned(),
            container: container.clone(),
            master: self.master.clone(),
            host: HOST_IP.to_string(),
            staging: None,
            gpus: None,
        }
        .write(&dir, |scope: Scope| self.secret.token(&scope))?;
        let mut command = std::process::Command::new(&self.binary);
        command.arg("agent").arg(&dir).current_dir(&dir);
        command.env(env::CONTAINER, container.as_str());
        // On a machine with GPUs, hide them from tasks without any, unless nothing is limited.
        let sees_all = held.gpus.is_empty() && self.capacity.is_unlimited();
        if !self.gpus.is_empty() && !sees_all {
            command.envs(gpus::variables(&held.gpus));
        }
        let log = std::fs::File::create(dir.join("agent.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // When the master dies, the agent stops its program in order. It must be able to catch this signal.
        spawn::die_with_parent(&mut command, Signal::TERM);
        spawn::own_group(&mut command);
        let mut child = children::spawn(&mut Command::from(command))?;
        // The child is not reaped yet, so its entry in `/proc` exists even if it has exited.
        let agent = child.id().and_then(Identity::of);
        let agent = agent.ok_or_else(|| io::Error::other("its process is not in `/proc`"))?;
        self.descriptors.apply_to(agent.pid);
        let (exit_tx, container) = (self.exit_tx.clone(), container.clone());
        tokio::spawn(async move {
            let status = child.wait().await.map_or(1, |status| {
                use std::os::unix::process::ExitStatusExt;
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(9))
            });
            reap_descendants().await;
            // The receiver lives as long as the master.
            let _ = exit_tx.send((container, status));
        });
        Ok(agent)
    }

    fn on_exit(&mut self, container: ContainerId, status: i32) {
        let Some(gone) = self.containers.remove(&container) else {
            return;
        };
        self.capacity.release(&gone.resources);
        self.gpus.release(&gone.gpus);
        let exit = gone.killed_for.unwrap_or(ContainerExit::Completed { status });
        self.events.push_back(Event::Ended { containers: vec![(container, exit)] });
        self.grant();
    }

    fn kill(&mut self, container: &ContainerId, exit: ContainerExit) {
        let Some(held) = self.containers.get_mut(container) else {
            return;
        };
        held.killed_for.get_or_insert(exit);
        match held.agent {
            // The shim detects the death of the agent and kills the rest; see `reap_descendants`. A missing
            // agent is no error.
            Some(agent) => drop(agent.signal(Signal::KILL)),
            None => self.on_exit(container.clone(), 0),
        }
    }

    /// Kills containers over their memory limit and grants GPUs that other jobs released.
    fn check(&mut self) {
        self.grant();
        if self.capacity.is_unlimited() {
            return;
        }
        let limits = self.containers.iter().filter_map(|(container, held)| {
            Some((container.clone(), held.agent?, held.resources.memory_mib))
        });
        for Overrun { container, used_mib, limit_mib } in limit::overruns(limits) {
            self.kill(&container, ContainerExit::MemoryLimit { used_mib, limit_mib });
        }
    }
}

/// Kills the processes of a dead agent. Its descendants became children of this process.
async fn reap_descendants() {
    let end = Instant::now() + KILL_TIMEOUT;
    let mut pause = Duration::from_millis(1);
    while children::sweep().is_ok_and(|left| left > 0) && Instant::now() < end {
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

impl Backend for LocalBackend {
    fn set_asks(&mut self, asks: Asks) {
        self.asks = asks;
        let mut impossible = None;
        for ask in &self.asks.asks {
            impossible = impossible.or(self.capacity.unsatisfiable(ask));
        }
        if let Some(why) = impossible {
            self.asks = Asks::default();
            self.events.push_back(Event::RequestUnsatisfiable { reason: why });
            return;
        }
        self.grant();
    }

    fn launch(&mut self, container: ContainerId, launch: Launch) {
        tracing::debug!(%container, task = %launch.task, size = %launch.resources, "launch");
        match self.start(&container) {
            Ok(agent) => {
                if let Some(held) = self.containers.get_mut(&container) {
                    held.agent = Some(agent);
                }
                self.events.push_back(Event::Launched { container });
            }
            Err(error) => {
                let why = format!(
                    "cannot start the agent `{}`: {}",
                    self.binary.display(),
                    ydl_os::reason(&error)
                );
                self.events.push_back(Event::LaunchFailed { container, reason: why });
            }
        }
    }

    fn release(&mut self, container: ContainerId) {
        self.kill(&container, ContainerExit::Released);
    }

    fn shortage(&self) -> Option<String> {
        self.shortage.as_ref().map(ToString::to_string)
    }

    async fn next(&mut self) -> Result<Event, Fenced> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                Some((container, status)) = self.exits.recv() => self.on_exit(container, status),
                _ = self.next_check.tick() => {
                    let began = Instant::now();
                    self.check();
                    self.next_check.reset_after(CHECK_INTERVAL.max(began.elapsed() * CHECK_COST_FACTOR));
                }
            }
        }
    }

    async fn close(&mut self, _outcome: &Outcome) {
        self.asks = Asks::default();
        let all: Vec<_> = self.containers.keys().cloned().collect();
        for container in all {
            self.kill(&container, ContainerExit::Released);
        }
        let gone = async {
            while !self.containers.is_empty() {
                let Some((container, status)) = self.exits.recv().await else {
                    return;
                };
                self.on_exit(container, status);
            }
        };
        if timeout(KILL_TIMEOUT, gone).await.is_err() {
            tracing::warn!("some processes of the job could not be killed");
        }
        reap_descendants().await;
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
