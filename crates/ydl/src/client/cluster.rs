//! Connection to a cluster: its configuration, its ResourceManager, and the caller's identity.

use crate::{
    cli::{Cluster, GlobalArgs},
    terminal,
};
use std::{
    future::Future,
    net::{TcpStream, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};
use tokio::time::{Instant, timeout};
use yarn_native::{
    client::Client,
    config::{Authentication, Config, ConfigError, Environment, ResourceManager, SetupError},
    rpc::{ExceptionKind, RpcError},
    security::{Identity, SecurityError},
};
use ydl_os::{
    report::{Exit, Report},
    worded,
};

/// Maximum time for a ResourceManager to respond.
const RESPONSE_MAX: Duration = Duration::from_secs(30);
/// Connection timeout of a ResourceManager that refuses connections. Hadoop's own programs try for a quarter of an
/// hour; an interactive command should fail sooner.
const CONNECT_TIMEOUT_MS: &str = "8000";
/// Timeout of the probe of the admin endpoint, and limit on the addresses tried per host.
const ADMIN_PROBE_MAX: Duration = Duration::from_millis(500);
const ADDRESSES_MAX: usize = 4;
/// Delay of the notice that a response is slow.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Hint for the case that all ResourceManagers are on standby.
const STANDBY: &str = "wait for the failover to finish, or ask an administrator to make one active (`yarn rmadmin -getAllServiceState` shows their states)";

/// Connection to one cluster.
#[derive(Clone, Debug)]
pub struct ClusterClient {
    /// Configuration as it was read, without changes.
    pub config: Config,
    /// Client of the ResourceManager.
    pub rm: Client,
    /// Name of the caller according to the configuration; on a secure cluster the ticket decides.
    pub user: String,
    /// Credentials of the caller.
    pub identity: Identity,
}

/// Loads the Hadoop configuration named by the environment variables, if there is one.
pub fn configuration() -> Result<Option<Config>, Report> {
    let environment = Environment::of_process();
    if Config::directories(&environment).is_empty() {
        return Ok(None);
    }
    let config = Config::load(environment).map_err(|error| unreadable(&error))?;
    Ok((!config.files().is_empty()).then_some(config))
}

/// Returns the cluster that a command applies to: with `--cluster yarn`, or with a configuration unless
/// `--cluster local` is given. `None` means this machine.
pub fn select(global: GlobalArgs) -> Result<Option<ClusterClient>, Report> {
    match global.cluster {
        Some(Cluster::Local) => Ok(None),
        Some(Cluster::Yarn) => ClusterClient::open().map(Some),
        None => configuration()?.map(ClusterClient::with).transpose(),
    }
}

/// Returns the cluster of a command that needs one.
pub fn require(global: GlobalArgs) -> Result<ClusterClient, Report> {
    if global.cluster == Some(Cluster::Local) {
        let what = "nodes and queues exist only on a cluster";
        return Err(Report::bad_input(what).hint("leave out `--cluster local`"));
    }
    ClusterClient::open()
}

/// Reports a missing configuration and the directories searched.
pub(crate) fn missing_configuration() -> Report {
    let named = Config::directories(&Environment::of_process());
    let named: Vec<_> = named.iter().map(|dir| format!("`{}`", dir.display())).collect();
    let what = match named.is_empty() {
        true => "no Hadoop configuration found".to_owned(),
        false => format!("there is no Hadoop configuration in {}", named.join(" and ")),
    };
    Report::bad_input(what)
        .hint("set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`")
}

/// Returns the first directory that a variable names for a Hadoop configuration.
pub(crate) fn named_directory() -> Option<PathBuf> {
    let named = Config::directories(&Environment::of_process());
    named.into_iter().next()
}

fn unreadable(error: &ConfigError) -> Report {
    let why = match error {
        ConfigError::Unreadable { path, source } => {
            format!("cannot read `{}`: {}", path.display(), ydl_os::reason(source))
        }
        error => error.to_string(),
    };
    Report::bad_input(format!("invalid Hadoop configuration: {why}")).hint(
        "check `HADOOP_CONF_DIR` and `YARN_CONF_DIR`, or use this machine with `--cluster local`",
    )
}

impl ClusterClient {
    /// Creates a client for the cluster whose configuration the environment variables name.
    pub fn open() -> Result<ClusterClient, Report> {
        match configuration()? {
            Some(config) => ClusterClient::with(config),
            None => Err(missing_configuration()),
        }
    }

    /// Creates a client for the cluster of a configuration.
    pub fn with(config: Config) -> Result<ClusterClient, Report> {
        let mut interactive = config.clone();
        let key = "yarn.resourcemanager.connect.max-wait.ms";
        interactive.set(key, CONNECT_TIMEOUT_MS, "interactive command");
        let connect = || {
            let identity = Identity::from_config(&interactive)?;
            let rm = Client::from_config(&interactive, identity.clone())?;
            Ok((rm, identity))
        };
        let (rm, identity) = connect().map_err(|error: SetupError| match error {
            SetupError::Config(error) => unreadable(&error),
            error => Report::internal(format!("cannot call the ResourceManager: {error}")),
        })?;
        let user = match config.proxy_user() {
            Some(user) => user,
            None => config.user().map_err(|error| unreadable(&error))?,
        };
        Ok(ClusterClient { config, rm, user, identity })
    }

    /// Returns whether callers must authenticate, and containers need tokens.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.config.authentication(), Ok(Authentication::Kerberos))
    }

    /// Returns the deadline of a call.
    pub fn deadline(&self) -> Instant {
        Instant::now() + RESPONSE_MAX
    }

    /// Waits for the ResourceManager's response. After a delay it prints a notice.
    pub async fn call<T>(
        &self,
        request: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, Report> {
        let mut request = std::pin::pin!(request);
        let response = match timeout(NOTICE_DELAY, &mut request).await {
            Ok(response) => response,
            Err(_) => {
                let addresses = self.addresses();
                terminal::message(format!("waiting for the ResourceManager at {addresses}"));
                request.await
            }
        };
        response.map_err(|error| self.report(error))
    }

    /// Converts a failed call to a report.
    pub fn report(&self, error: RpcError) -> Report {
        match &error {
            RpcError::Unreachable { reason, .. } => self.unreachable(reason),
            RpcError::NoActiveServer { reason, .. } => {
                let what = format!(
                    "no ResourceManager at {} is active: {}",
                    self.addresses(),
                    first_line(reason)
                );
                Report::new(Exit::Unreachable, what).hint(STANDBY)
            }
            // A failure on this machine, before any request.
            RpcError::Security {
                source:
                    source @ (SecurityError::NoTicket { .. } | SecurityError::TicketExpired { .. }),
                ..
            } => {
                let report = Report::bad_input(source.to_string());
                match source.hint() {
                    Some(hint) => report.hint(hint),
                    None => report,
                }
            }
            RpcError::DeadlinePassed { .. } | RpcError::Unanswered { .. } => {
                let what = format!("the ResourceManager at {}: {error}", self.addresses());
                Report::new(Exit::Unreachable, what).hint(self.hint())
            }
            RpcError::Denied { exception, .. } => {
                let what = format!(
                    "permission denied by the ResourceManager: {}",
                    first_line(&exception.message)
                );
                let report = Report::bad_input(what);
                match exception.message.contains("not allowed to impersonate") {
                    true => report.hint("unset `HADOOP_PROXY_USER`, or have an administrator allow it in the cluster's `hadoop.proxyuser` keys"),
                    false => report,
                }
            }
            RpcError::Rejected { exception, .. } => {
                let what =
                    format!("rejected by the ResourceManager: {}", first_line(&exception.message));
                match exception.kind() {
                    ExceptionKind::ApplicationNotFound => Report::bad_input(what)
                        .hint("list the jobs known to the ResourceManager with `ydl ls`"),
                    _ => Report::bad_input(what),
                }
            }
            _ => {
                let report = Report::new(
                    Exit::Unreachable,
                    format!("the ResourceManager at {}: {error}", self.addresses()),
                );
                match error.hint() {
                    Some(hint) => report.hint(hint),
                    None => report,
                }
            }
        }
    }

    /// Reports an unreachable client endpoint. An open admin endpoint narrows the cause: the ResourceManager is on
    /// standby, still starting, or has another client address.
    fn unreachable(&self, reason: &str) -> Report {
        let managers = self.config.resource_managers().unwrap_or_default();
        let open: Vec<_> = managers.iter().filter(|rm| admin_endpoint_is_open(rm)).collect();
        let addresses = self.addresses();
        let reason = worded(reason.to_owned());
        let unreachable = format!("no ResourceManager can be reached at {addresses}: {reason}");
        let names: Vec<_> = open.iter().map(|rm| format!("`{}`", rm.client)).collect();
        let states = match (&open[..], managers.len()) {
            ([], _) => return Report::new(Exit::Unreachable, unreachable).hint(self.hint()),
            ([one], 1) => {
                let what = format!("{unreachable}; its admin endpoint `{}` is open", one.admin);
                let hint = format!(
                    "check `yarn.resourcemanager.address`{}; or the ResourceManager may still be starting",
                    self.site().map(|path| format!(" in `{path}`")).unwrap_or_default()
                );
                return Report::new(Exit::Unreachable, what).hint(hint);
            }
            (all, n) if all.len() == n => format!("all {n} are on standby"),
            ([_], _) => format!("{} is on standby, the others are unreachable", names[0]),
            _ => format!("{} are on standby, the others are unreachable", names.join(", ")),
        };
        let what = format!("no ResourceManager at {addresses} is active: {states} ({reason})");
        Report::new(Exit::Unreachable, what).hint(STANDBY)
    }

    /// Returns the addresses of all ResourceManagers.
    fn addresses(&self) -> String {
        let managers = self.config.resource_managers().unwrap_or_default();
        let all: Vec<_> = managers.iter().map(|manager| format!("`{}`", manager.client)).collect();
        all.join(", ")
    }

    fn site(&self) -> Option<String> {
        let mut files = self.config.files().iter();
        let site = files.find(|path| path.ends_with("yarn-site.xml"));
        site.map(|path| path.display().to_string())
    }

    fn hint(&self) -> String {
        match self.site() {
            Some(path) => format!(
                "check that it runs and that `{path}` has its address; or use this machine with `--cluster local`"
            ),
            None => "set `HADOOP_CONF_DIR`: the configuration has no `yarn-site.xml`, so this is a default address".to_owned(),
        }
    }
}

/// Returns whether the endpoint for administrators accepts connections.
fn admin_endpoint_is_open(manager: &ResourceManager) -> bool {
    let admin = &manager.admin;
    let addresses = (admin.host.as_str(), admin.port).to_socket_addrs();
    let mut addresses = addresses.into_iter().flatten().take(ADDRESSES_MAX);
    addresses.any(|address| TcpStream::connect_timeout(&address, ADMIN_PROBE_MAX).is_ok())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
