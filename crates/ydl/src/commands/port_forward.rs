//! `ydl port-forward`: forwards a local port to a port of a task.
//!
//! Each connection goes to the job's master over TLS, from there to the task's agent, and from there to the program.

use super::follow::InterruptSignals;
use crate::{
    cli::{self, GlobalArgs},
    client::{
        jobs::{JobHandle, JobStatus},
        master_client::{MasterClient, block_on, call_report, no_master, settled_status},
        resolve::resolve_job,
    },
    terminal,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, sleep},
};
use ydl_core::{JobSpec, RoleName, TaskId, spec::RoleSpec};
use ydl_net::{
    client::{CallError, UpgradedStream},
    forward::splice,
    text::percent,
};
use ydl_os::{
    reason,
    report::{Exit, Report},
    tcp_table::{self, Socket},
};

/// Maximum number of concurrent connections. A browser opens about six to a server.
const CONNECTIONS_MAX: usize = 64;
/// Maximum time for connecting to the program.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// Maximum wait of a connection for a program that does not listen yet, or for a master that moves.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Delay before a connection attempt is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Poll interval for the job's end.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Listens until the job is over.
pub(crate) fn run(args: cli::PortForwardArgs, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        let (job, mirror) = resolve_job(args.job.as_deref(), global).await?.into_full()?;
        // On a cluster the master may move; the poller follows its address and sees the job's end.
        let _watching = mirror.map(|mirror| mirror.watch());
        let spec = &job.submitted.spec;
        let task = task_of(spec, args.task.as_deref())?;
        let port = port_of(spec, &task, args.name.as_deref())?;
        let instances = spec.role(&task.role).map_or(0, RoleSpec::max_instances);
        let address = match settled_status(&job).await {
            JobStatus::Running(address) => address,
            JobStatus::Starting => return Err(no_master(&job)),
            JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => {
                let what = format!("`{}` has ended", job.id());
                return Err(Report::bad_input(what).hint("submit it again"));
            }
        };
        let forwarder = Arc::new(Forwarder {
            master: MasterClient::to(&job.dir, &address)?,
            path: format!(
                "/v1/port-forward?task={}&port={}",
                percent(&task.to_string()),
                percent(&port)
            ),
            job,
        });
        // Reject impossible targets before any connection. A role may have been scaled beyond what was submitted.
        if let Err(error @ CallError::Refused { status, .. }) = forwarder.try_once().await {
            match status {
                401 | 403 => return Err(call_report(error)),
                404 if task.index >= instances => {
                    let what = format!("the job has no task `{task}`");
                    let hint =
                        format!("role `{}` has {instances} tasks, numbered from 0", task.role);
                    return Err(Report::bad_input(what).hint(hint));
                }
                _ => {}
            }
        }
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
        let cannot = |error: std::io::Error| {
            let what = format!("cannot listen on `{at}`: {}", reason(&error));
            Report::bad_input(what).hint("choose another port with `--port`")
        };
        let listener = TcpListener::bind(at).await.map_err(cannot)?;
        let at = listener.local_addr().map_err(cannot)?;
        let mut signals = InterruptSignals::listen()?;
        match global.json {
            true => terminal::print_json(&serde_json::json!({
                "id": forwarder.job.id(), "task": task.to_string(), "address": at.to_string(),
            }))?,
            false => terminal::print(format!(
                "{}\n",
                display_address(&forwarder.job.submitted.spec, &task, &port, at)
            ))?,
        }
        tokio::select! {
            () = serve(&listener, at, &forwarder, &task) => {}
            () = until_finished(&forwarder) => terminal::message(format!("{} has ended", forwarder.job.id())),
            _ = signals.next() => {}
        }
        Ok(Exit::Success)
    })
}

/// Returns the given task, or the only candidate among the tasks with ports.
fn task_of(spec: &JobSpec, name: Option<&str>) -> Result<TaskId, Report> {
    let first = |role: &RoleSpec| TaskId { role: role.name.clone(), index: 0 };
    let port_hint = || {
        let with_ports = spec.roles.iter().filter(|role| !role.ports.is_empty());
        let names: Vec<_> = with_ports.map(|role| format!("`{}`", first(role))).collect();
        match names.is_empty() {
            true => "give a role `ports: [http]`, or the job `tensorboard: true`".to_owned(),
            false => format!("select one of those with ports: {}", names.join(", ")),
        }
    };
    if let Some(name) = name {
        let role = |name: &str| spec.role(&RoleName::from(name));
        let task = match name.parse::<TaskId>() {
            Ok(task) => role(task.role.as_str()).map(|_| task),
            Err(_) => role(name).map(first),
        };
        return task.ok_or_else(|| {
            Report::bad_input(format!("the job has no task `{name}`")).hint(port_hint())
        });
    }
    let with_ports: Vec<_> = (spec.roles.iter()).filter(|role| !role.ports.is_empty()).collect();
    let sidecar = with_ports.iter().find(|role| role.is_sidecar());
    match (sidecar, &with_ports[..]) {
        (Some(role), _) => Ok(first(role)),
        (None, [role]) if role.instances == 1 => Ok(first(role)),
        (None, []) => Err(Report::bad_input("no task of the job has a port").hint(port_hint())),
        (None, _) => {
            Err(Report::bad_input("several tasks of the job have ports").hint(port_hint()))
        }
    }
}

/// Returns the port with the given name, or the first one of the role.
fn port_of(spec: &JobSpec, task: &TaskId, name: Option<&str>) -> Result<String, Report> {
    let Some(role) = spec.role(&task.role) else {
        return Err(Report::bad_input(format!("the job has no task `{task}`")));
    };
    let all = spec.framework.ports(role);
    let names: Vec<_> = all.iter().map(|(name, _)| format!("`{name}`")).collect();
    let hint = match names.is_empty() {
        true => format!("give the role `{}` some: `ports: [http]`", role.name),
        false => format!("it has {}: select one with `--name`", names.join(", ")),
    };
    let name = name.or_else(|| role.ports.first().map(String::as_str));
    let what = match (name, names.is_empty()) {
        (Some(name), _) if all.iter().any(|(own, _)| own == name) => return Ok(name.to_owned()),
        (_, true) => format!("`{task}` has no ports"),
        (Some(name), false) => format!("`{task}` has no port `{name}`"),
        (None, false) => format!("`{task}` has several ports"),
    };
    Err(Report::bad_input(what).hint(hint))
}

/// Formats the local address, as a URL for a port that serves a browser.
fn display_address(spec: &JobSpec, task: &TaskId, port: &str, at: SocketAddr) -> String {
    let board = spec.role(&task.role).is_some_and(RoleSpec::is_sidecar);
    match () {
        () if port.starts_with("https") => format!("https://{at}/"),
        () if board || port.starts_with("http") || port.starts_with("web") => {
            format!("http://{at}/")
        }
        () => at.to_string(),
    }
}

struct Forwarder {
    job: Box<JobHandle>,
    master: MasterClient,
    path: String,
}

impl Forwarder {
    async fn try_once(&self) -> Result<UpgradedStream, CallError> {
        self.master.client().join(&self.path, CONNECT_MAX).await
    }

    /// Connects to the program. Retries while the program starts or the master moves.
    async fn connect(&self) -> Result<UpgradedStream, CallError> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let error = match self.try_once().await {
                Ok(stream_to_task) => return Ok(stream_to_task),
                Err(error) => error,
            };
            let is_permanent = matches!(&error, CallError::Refused { status, .. } if *status < 404)
                || matches!(error, CallError::WrongCertificate { .. } | CallError::Version { .. });
            if is_permanent || Instant::now() + RETRY_DELAY > end {
                return Err(error);
            }
            if let Some(remote) = &self.job.remote {
                remote.request_poll();
            }
            if let JobStatus::Running(address) = self.job.status() {
                self.master.set_address(&address.address);
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

async fn serve(listener: &TcpListener, at: SocketAddr, forwarder: &Arc<Forwarder>, task: &TaskId) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Further connections wait in the kernel's accept queue.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                sleep(RETRY_DELAY).await;
                continue;
            }
        };
        if !is_own_connection(peer, at) {
            terminal::message("a connection of another user was closed");
            continue;
        }
        let (forwarder, task) = (forwarder.clone(), task.clone());
        tokio::spawn(async move {
            let _permit = permit;
            forward_connection(&forwarder, stream, &task).await;
        });
    }
}

async fn forward_connection(forwarder: &Forwarder, stream: TcpStream, task: &TaskId) {
    let _ = stream.set_nodelay(true);
    match forwarder.connect().await {
        // Either side may close the connection at any time.
        Ok(stream_to_task) => drop(splice(stream, stream_to_task).await),
        Err(error) => {
            terminal::message(format!("cannot connect to {task}: {}", call_report(error).what));
        }
    }
}

/// Waits until the job is over.
async fn until_finished(forwarder: &Forwarder) {
    loop {
        sleep(POLL_INTERVAL).await;
        match forwarder.job.status() {
            JobStatus::Running(_) | JobStatus::Starting => {}
            JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => return,
        }
        if let Some(remote) = &forwarder.job.remote {
            remote.request_poll();
        }
    }
}

/// Returns whether the peer of a local connection is a process of this user. On a shared machine, other users can
/// connect to the port too.
fn is_own_connection(peer: SocketAddr, at: SocketAddr) -> bool {
    let own = rustix::process::geteuid().as_raw();
    tcp_table::sockets().is_ok_and(|all| owner(&all, peer, at) == Some(own))
}

/// Returns the user id that owns the socket with these ends.
fn owner(all: &[Socket], own: SocketAddr, other: SocketAddr) -> Option<u32> {
    let socket = all.iter().find(|socket| (socket.own, socket.other) == (own, other));
    socket.map(|socket| socket.user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_connections_of_this_user_are_recognized() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).await.unwrap();
        let (_accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(stream.local_addr().unwrap(), peer);
        assert!(is_own_connection(peer, at));
        assert!(!is_own_connection(SocketAddr::from(([127, 0, 0, 1], 1)), at));
    }

    #[test]
    fn the_owner_of_a_connection_is_read_from_the_tcp_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n";
        let (local, remote) = ("127.0.0.1:8080", "127.0.0.1:80");
        let of = |local: &str, remote: &str| {
            let all = tcp_table::parse(table);
            owner(&all, local.parse().unwrap(), remote.parse().unwrap())
        };
        assert_eq!(of(local, remote), Some(1000));
        assert_eq!(of(remote, local), None);
    }
}
