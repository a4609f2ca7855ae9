//! This machine as one node: its memory, cores and GPUs counted, its containers plain processes.
//!
//! * `mod.rs` (here): grants, launches and ends. * `room`: what is left of the machine.
//! * `limit`: memory limits, much as a NodeManager keeps them.

mod limit;
mod room;

pub use room::{Misfit, complaint};

use super::{Backend, Deposed, Launch};
use crate::gpus::{self, Device, Pool, Short};
use limit::Overrun;
use room::Room;
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
use ydl_proto::files::{JobDir, Offer};

/// How often memory is looked at. A NodeManager looks every three seconds.
const LOOK: Duration = Duration::from_secs(1);
/// A look at thousands of processes takes its time, of which the loop has this part to lose.
const LOOK_SHARE: u32 = 20;
/// How long a container's last processes may take to disappear after SIGKILL.
const GONE_MAX: Duration = Duration::from_secs(10);
/// The address of every task: nobody outside this machine has business with them.
pub const HOST_IP: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The local backend of one job.
#[derive(Debug)]
pub struct Local {
    job: JobDir,
    master: String,
    secret: Arc<Secret>,
    binary: PathBuf,
    room: Room,
    gpus: Pool,
    /// Why devices are waited for, as last told.
    short: Option<Short>,
    node: NodeName,
    wanted: Asks,
    granted: u64,
    containers: BTreeMap<ContainerId, Container>,
    /// What has happened and was not told yet.
    happened: VecDeque<Event>,
    ends: mpsc::UnboundedReceiver<(ContainerId, i32)>,
    end: mpsc::UnboundedSender<(ContainerId, i32)>,
    look: Interval,
    /// The limit on descriptors that programs get: ours before it was raised.
    descriptors: Descriptors,
}

#[derive(Debug)]
struct Container {
    resources: ydl_core::spec::Resources,
    gpus: Vec<String>,
    /// The agent's process, once it runs. Not its pid alone: it is reaped before its end is known here.
    agent: Option<Identity>,
    /// Why it was killed, if it was.
    over: Option<ContainerExit>,
}

impl Local {
    /// A backend for the job in that directory, whose master listens at that address.
    pub fn new(
        job: JobDir,
        offer: &Offer,
        master: String,
        secret: Arc<Secret>,
    ) -> io::Result<Local> {
        let (end, ends) = mpsc::unbounded_channel();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Local {
            gpus: Pool::new(offer.gpus.iter().map(|name| Device::counted(name)).collect()),
            short: None,
            room: Room::new(offer),
            node: NodeName::from(hostname()),
            binary: std::env::current_exe()?,
            job,
            master,
            secret,
            wanted: Asks::default(),
            granted: 0,
            containers: BTreeMap::new(),
            happened: VecDeque::from([Event::NodesCounted { nodes: 1 }]),
            ends,
            end,
            look,
            descriptors: Descriptors::raise(),
        })
    }

    /// Grants what is wanted and fits.
    fn grant(&mut self) {
        let mut grants = Vec::new();
        for ask in &mut self.wanted.asks {
            while ask.count > 0 && self.room.fits(&ask.resources) {
                let gpus = match self.gpus.take(ask.resources.gpus) {
                    Ok(gpus) => gpus,
                    Err(short) => {
                        if self.short.as_ref() != Some(&short) {
                            tracing::info!("a task of role `{}` waits: {short}", ask.role);
                        }
                        self.short = Some(short);
                        break;
                    }
                };
                self.room.take(&ask.resources);
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
                let new = Container { resources, gpus, agent: None, over: None };
                self.containers.insert(container, new);
            }
        }
        if !grants.is_empty() {
            self.happened.push_back(Event::Granted { grants });
        }
    }

    fn start(&mut self, container: &ContainerId) -> io::Result<Identity> {
        let Some(held) = self.containers.get(container) else {
            return Err(io::Error::other("it was given back"));
        };
        let dir = self.job.container(container);
        crate::agent::setting::Setting {
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
        // Where there are GPUs, a task without any sees none.
        if !self.gpus.is_empty() {
            command.envs(gpus::variables(&held.gpus));
        }
        let log = std::fs::File::create(dir.join("agent.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // The agent stops its program in order when the master dies; it must be able to catch this.
        spawn::die_with_parent(&mut command, Signal::TERM);
        spawn::own_group(&mut command);
        let mut child = children::spawn(&mut Command::from(command))?;
        // It has not been waited for, so even one that has ended is still there to be looked at.
        let agent = child.id().and_then(Identity::of);
        let agent = agent.ok_or_else(|| io::Error::other("it cannot be found in `/proc`"))?;
        self.descriptors.give(agent.pid);
        let (end, container) = (self.end.clone(), container.clone());
        tokio::spawn(async move {
            let status = child.wait().await.map_or(1, |status| {
                use std::os::unix::process::ExitStatusExt;
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(9))
            });
            sweep_up().await;
            // The receiver is gone only when the master is.
            let _ = end.send((container, status));
        });
        Ok(agent)
    }

    fn on_end(&mut self, container: ContainerId, status: i32) {
        let Some(gone) = self.containers.remove(&container) else {
            return;
        };
        self.room.give_back(&gone.resources);
        self.gpus.give_back(&gone.gpus);
        let end = gone.over.unwrap_or(ContainerExit::Completed { status });
        self.happened.push_back(Event::Ended { containers: vec![(container, end)] });
        self.grant();
    }

    fn kill(&mut self, container: &ContainerId, why: ContainerExit) {
        let Some(held) = self.containers.get_mut(container) else {
            return;
        };
        held.over.get_or_insert(why);
        match held.agent {
            // Its keeper sees the agent go and takes everything else with it; see `sweep_up`. That the agent has
            // gone already is no error.
            Some(agent) => drop(agent.signal(Signal::KILL)),
            None => self.on_end(container.clone(), 0),
        }
    }

    /// Containers that use more memory than they asked for, and GPUs that other jobs have given back.
    fn look(&mut self) {
        self.grant();
        let limits = self.containers.iter().filter_map(|(container, held)| {
            Some((container.clone(), held.agent?, held.resources.memory_mib))
        });
        for Overrun { container, used_mib, limit_mib } in limit::overruns(limits) {
            self.kill(&container, ContainerExit::MemoryLimit { used_mib, limit_mib });
        }
    }
}

/// Ends what a dead agent has left behind. Everything below it became a child of this process.
async fn sweep_up() {
    let end = Instant::now() + GONE_MAX;
    let mut pause = Duration::from_millis(1);
    while children::sweep().is_ok_and(|left| left > 0) && Instant::now() < end {
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

impl Backend for Local {
    fn want(&mut self, asks: Asks) {
        self.wanted = asks;
        let mut impossible = None;
        for ask in &self.wanted.asks {
            impossible = impossible.or(self.room.never_fits(ask));
        }
        if let Some(why) = impossible {
            self.wanted = Asks::default();
            self.happened.push_back(Event::RequestUnsatisfiable { why });
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
                self.happened.push_back(Event::Launched { container });
            }
            Err(error) => {
                let why = format!("cannot start an agent: {}", ydl_os::reason(&error));
                self.happened.push_back(Event::LaunchFailed { container, why });
            }
        }
    }

    fn release(&mut self, container: ContainerId) {
        self.kill(&container, ContainerExit::Released);
    }

    async fn next(&mut self) -> Result<Event, Deposed> {
        loop {
            if let Some(event) = self.happened.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                Some((container, status)) = self.ends.recv() => self.on_end(container, status),
                _ = self.look.tick() => {
                    let began = Instant::now();
                    self.look();
                    self.look.reset_after(LOOK.max(began.elapsed() * LOOK_SHARE));
                }
            }
        }
    }

    async fn close(&mut self, _outcome: &Outcome) {
        self.wanted = Asks::default();
        let all: Vec<_> = self.containers.keys().cloned().collect();
        for container in all {
            self.kill(&container, ContainerExit::Released);
        }
        let gone = async {
            while !self.containers.is_empty() {
                let Some((container, status)) = self.ends.recv().await else {
                    return;
                };
                self.on_end(container, status);
            }
        };
        if timeout(GONE_MAX, gone).await.is_err() {
            tracing::warn!("processes of the job are left that could not be ended");
        }
        sweep_up().await;
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
