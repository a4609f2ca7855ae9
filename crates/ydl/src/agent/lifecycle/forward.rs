//! Forwards connections of clients to a port of the program. The agent connects to both sides, so that no port of the
//! node needs to be reachable.

use super::Agent;
use hyper::Method;
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};
use ydl_core::TaskId;
use ydl_net::{
    client::{Client, Payload},
    forward::splice,
};
use ydl_os::reason;

/// Maximum number of concurrent connections to ports of one program.
const FORWARDS_MAX: usize = 128;
/// Timeout of a connection to the program.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Timeout of calls to the master.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Permits of forwarded connections, each held while it lasts.
#[derive(Clone, Debug)]
pub(super) struct ForwardPermits(Arc<Semaphore>);

impl Default for ForwardPermits {
    fn default() -> ForwardPermits {
        ForwardPermits(Arc::new(Semaphore::new(FORWARDS_MAX)))
    }
}

impl Agent {
    /// Forwards a connection to a port of the running program, outside the loop.
    pub(super) fn forward(&self, id: u64, task: &TaskId, port: Option<&str>) {
        let client = Arc::clone(&self.master.client);
        let selected = match (
            Arc::clone(&self.request_permits.forwards.0).try_acquire_owned(),
            &self.port_reservation,
        ) {
            (Err(_), _) => Err(format!("too many connections to `{task}` at once")),
            (Ok(_), _) if self.running.is_none() => Err(format!("`{task}` is not running")),
            (Ok(permit), reservation) => {
                let ports =
                    reservation.as_ref().map(|reservation| reservation.ports()).unwrap_or_default();
                let requested = self.requested_ports(task);
                select_port(task, &ports, &requested, port).map(|port| (permit, port))
            }
        };
        let host = self.bootstrap.host.clone();
        tokio::spawn(async move {
            let connected = match selected {
                Ok((permit, (name, port))) => match connect(&host, port).await {
                    Ok(stream) => Ok((permit, stream)),
                    Err(error) => {
                        let why = reason(&error);
                        Err(format!("cannot connect to its port `{name}`: {why}"))
                    }
                },
                Err(why) => Err(why),
            };
            match connected {
                Ok((_permit, stream)) => splice_with_master(&client, id, stream).await,
                Err(why) => {
                    let path = format!("/v1/port-forward-reply?request={id}&failed");
                    let payload = Payload::Raw(why.into_bytes().into());
                    if let Err(error) = client.call(Method::POST, &path, payload, CALL_MAX).await {
                        tracing::debug!("the port-forward request was cancelled: {error}");
                    }
                }
            }
        });
    }

    /// Returns the ports that the role requested in addition to its framework's own.
    fn requested_ports(&self, task: &TaskId) -> Vec<String> {
        let role = self.submitted.spec.role(&task.role);
        role.map(|role| role.ports.clone()).unwrap_or_default()
    }
}

/// Selects a port by name; without a name the first that the role requested.
fn select_port(
    task: &TaskId,
    ports: &BTreeMap<String, u16>,
    requested: &[String],
    name: Option<&str>,
) -> Result<(String, u16), String> {
    let name = name.or_else(|| requested.first().map(String::as_str));
    let found = name.and_then(|name| Some((name.to_owned(), *ports.get(name)?)));
    found.ok_or_else(|| {
        let names: Vec<_> = ports.keys().map(|name| format!("`{name}`")).collect();
        match (name, names.is_empty()) {
            (_, true) => format!("`{task}` has no ports"),
            (Some(name), false) => {
                let names = names.join(", ");
                format!("`{task}` has no port `{name}`; it has {names}")
            }
            (None, false) => format!("no port of `{task}` chosen; it has {}", names.join(", ")),
        }
    })
}

/// Connects to the loopback interface or the node's address: a program may listen on one of them alone.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let own = host.parse().ok().filter(|ip| *ip != loopback);
    let mut last = io::ErrorKind::ConnectionRefused.into();
    for ip in [Some(loopback), own].into_iter().flatten() {
        match timeout(CONNECT_MAX, TcpStream::connect(SocketAddr::from((ip, port)))).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn splice_with_master(client: &Client, id: u64, stream: TcpStream) {
    let path = format!("/v1/port-forward-reply?request={id}");
    match client.join(&path, CALL_MAX).await {
        // Such connections end when either side closes.
        Ok(joined) => drop(splice(stream, joined).await),
        Err(error) => tracing::debug!("the port-forward request was cancelled: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_selected_by_name_or_is_the_first_requested() {
        let task: TaskId = "web:0".parse().unwrap();
        let ports = BTreeMap::from([("http".to_owned(), 80), ("tf".to_owned(), 90)]);
        let requested = ["http".to_owned()];
        let port = |requested: &[String], name| select_port(&task, &ports, requested, name);
        assert_eq!(port(&requested, None).unwrap().1, 80);
        assert_eq!(port(&[], Some("tf")).unwrap().1, 90);
        assert_eq!(port(&[], None).unwrap_err(), "no port of `web:0` chosen; it has `http`, `tf`");
        assert_eq!(
            port(&requested, Some("x")).unwrap_err(),
            "`web:0` has no port `x`; it has `http`, `tf`"
        );
        let none = select_port(&task, &BTreeMap::new(), &[], None);
        assert_eq!(none.unwrap_err(), "`web:0` has no ports");
    }
}
