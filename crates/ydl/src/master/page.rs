//! Page of a job on a cluster: its tracking URL, which users open through YARN's web proxy.
//!
//! The page is plain HTTP, because the proxy does not know the job's certificate, and read-only. Any host can connect to
//! its port, and the proxy passes requests of all its users. So details are shown only where YARN shows them to all users:
//! to the proxy, on a cluster without access lists.
//!
//! * `html`: the page. * `server`: who gets it. `ClusterPages` (here): YARN's own pages of the job.

mod html;
mod server;

pub(super) use server::PageServer;

use super::progress::JobProgress;
use std::net::IpAddr;
use yarn_native::{
    config::{Authentication, Config},
    rpc::Address,
};
use ydl_core::{JobSpec, JobView, view::RoleView};

/// State of a job as its page shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PageState {
    name: String,
    state: &'static str,
    reason: String,
    round: u32,
    progress: JobProgress,
    priority: Option<i32>,
    roles: Vec<RoleView>,
}

impl PageState {
    /// State of a job whose master starts.
    pub(super) fn starting(name: &str) -> PageState {
        PageState {
            name: name.to_owned(),
            state: "starting",
            reason: "the job's master starts".to_owned(),
            round: 0,
            progress: JobProgress::default(),
            priority: None,
            roles: Vec::new(),
        }
    }

    pub(super) fn of(view: JobView, progress: JobProgress, priority: Option<i32>) -> PageState {
        PageState {
            state: view.word(),
            name: view.name,
            reason: view.reason,
            round: view.round,
            progress,
            priority,
            roles: view.roles,
        }
    }
}

/// Pages of a cluster about one application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterPages {
    /// The job's page through the web proxy.
    pub(super) proxied: Option<String>,
    /// The ResourceManager's page of the application, which outlives the master.
    pub(super) application: Option<String>,
    /// Hosts of the web proxies.
    proxies: Vec<String>,
    /// YARN shows details of applications to all users.
    is_open: bool,
}

impl ClusterPages {
    /// Reads the configuration of a cluster. A page whose address is unknown is left out.
    pub(super) fn of(config: &Config, id: &str, spec: &JobSpec) -> ClusterPages {
        let manager = manager_url(config);
        let proxy = config.web_proxy().ok().flatten();
        let proxied = match proxy {
            Some(proxy) => Some(format!("{}://{proxy}", scheme(config))),
            None => manager.clone(),
        };
        let options = &spec.cluster_options;
        let has_lists = options.viewers.is_some() || options.modifiers.is_some();
        let is_simple = config.authentication().ok() == Some(Authentication::Simple);
        ClusterPages {
            proxied: proxied.map(|url| format!("{url}/proxy/{id}/")),
            application: application_url(config, id),
            proxies: config.web_proxy_hosts().unwrap_or_default(),
            is_open: is_simple && !has_lists && config.access_lists().ok() == Some(false),
        }
    }
}

/// Returns the URL of the ResourceManager's page of an application, which outlives its master.
pub(super) fn application_url(config: &Config, id: &str) -> Option<String> {
    manager_url(config).map(|url| format!("{url}/cluster/app/{id}"))
}

/// Returns the URL of a ResourceManager. A standby one redirects to the active one.
fn manager_url(config: &Config) -> Option<String> {
    let (_, managers) = config.web_addresses().ok()?;
    let manager = managers.into_iter().find(is_reachable)?;
    Some(format!("{}://{manager}", scheme(config)))
}

fn scheme(config: &Config) -> &'static str {
    match config.web_uses_https() {
        Ok(true) => "https",
        Ok(false) | Err(_) => "http",
    }
}

/// Returns false for an address to listen on, such as the default `0.0.0.0:8088`.
fn is_reachable(address: &Address) -> bool {
    !address.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::event_loop::tests::job_spec;
    use yarn_native::config::Environment;
    use ydl_core::JobSpecBuilder;

    const ID: &str = "application_1795030900775_0042";

    fn pages(settings: &[(&str, &str)]) -> ClusterPages {
        let mut config = Config::defaults(Environment::default());
        for (key, value) in settings {
            config.set(key, *value, "a test");
        }
        ClusterPages::of(&config, ID, &job_spec(1))
    }

    #[test]
    fn the_pages_of_an_application_are_on_the_resource_manager() {
        let found = pages(&[("yarn.resourcemanager.hostname", "rm.example")]);
        let application = format!("http://rm.example:8088/cluster/app/{ID}");
        assert_eq!(found.application, Some(application));
        assert_eq!(found.proxied, Some(format!("http://rm.example:8088/proxy/{ID}/")));
        assert_eq!((found.proxies, found.is_open), (vec!["rm.example".to_owned()], true));
    }

    #[test]
    fn a_separate_proxy_and_several_managers_are_found() {
        let found = pages(&[
            ("yarn.http.policy", "HTTPS_ONLY"),
            ("yarn.resourcemanager.ha.enabled", "true"),
            ("yarn.resourcemanager.ha.rm-ids", "a,b"),
            ("yarn.resourcemanager.hostname.a", "one"),
            ("yarn.resourcemanager.hostname.b", "two"),
        ]);
        assert_eq!(found.application, Some(format!("https://one:8090/cluster/app/{ID}")));
        assert_eq!(found.proxies, ["one", "two"]);
        let found = pages(&[
            ("yarn.resourcemanager.hostname", "rm"),
            ("yarn.web-proxy.address", "proxy:9099"),
        ]);
        assert_eq!(found.proxied, Some(format!("http://proxy:9099/proxy/{ID}/")));
        assert_eq!(found.proxies, ["proxy"]);
    }

    #[test]
    fn an_address_to_listen_on_is_no_link() {
        let found = pages(&[]);
        assert_eq!((found.application, found.proxied), (None, None));
    }

    #[test]
    fn access_lists_and_authentication_close_the_page() {
        for setting in [("yarn.acl.enable", "true"), ("hadoop.security.authentication", "kerberos")]
        {
            let found = pages(&[("yarn.resourcemanager.hostname", "rm"), setting]);
            assert!(!found.is_open, "{setting:?}");
        }
        let mut draft = JobSpecBuilder::from(job_spec(1));
        draft.cluster_options.viewers = Some("alice".to_owned());
        let spec = draft.build().unwrap();
        let config = Config::defaults(Environment::default());
        assert!(!ClusterPages::of(&config, ID, &spec).is_open);
    }
}
