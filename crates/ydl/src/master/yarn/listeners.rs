//! Listeners of a master on its node: for its API, and for the job's page.

use super::{REQUEST_TIMEOUT, bootstrap::MasterBootstrap};
use crate::master::page::{ClusterPages, PageServer, PageState};
use std::{
    io,
    net::{IpAddr, SocketAddr},
};
use tokio::{
    net::{TcpListener, lookup_host},
    time::timeout,
};
use ydl_net::server;
use ydl_os::report::Report;
use ydl_proto::files::SubmittedJob;

/// Listens on the address by which other machines know this node.
pub(super) async fn listen(host: Option<&str>) -> Result<TcpListener, Report> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut found = Vec::new();
    if let Some(host) = host
        && let Ok(Ok(addresses)) = timeout(REQUEST_TIMEOUT, lookup_host((host, 0))).await
    {
        // A node often resolves its own name to a loopback address.
        let is_literal = host.parse::<IpAddr>().is_ok();
        found.extend(addresses.filter(|it| is_literal || !it.ip().is_loopback()));
    }
    // Others may still reach this node by a name that it does not resolve to itself.
    found.push(any);
    let mut last = String::new();
    for address in found {
        match server::listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = format!("cannot listen on {address}: {error}"),
        }
    }
    Err(Report::internal(last))
}

pub(super) fn public_address(host: Option<&str>, listener: &TcpListener) -> Result<String, Report> {
    let local = listener.local_addr().map_err(|e| Report::internal(e.to_string()))?;
    Ok(match host {
        Some(host) => format!("{host}:{}", local.port()),
        None => local.to_string(),
    })
}

/// Page of the job, with its addresses during and after the job.
pub(super) struct JobPage {
    /// None if it cannot be served: the job does not need it.
    pub(super) server: Option<PageServer>,
    /// Empty without a server.
    pub(super) url: String,
    pub(super) final_url: String,
}

/// Serves the page of the job on the address of the API. The page says that the master starts.
pub(super) fn serve_page(bootstrap: &MasterBootstrap, api: &TcpListener) -> JobPage {
    let SubmittedJob { id, spec, .. } = &bootstrap.submitted;
    let pages = ClusterPages::of(&bootstrap.config, id, spec);
    let final_url = pages.application.clone().unwrap_or_default();
    let serve = || -> io::Result<_> {
        let listener = server::listen(SocketAddr::new(api.local_addr()?.ip(), 0))?;
        let host = bootstrap.host.as_deref();
        let address =
            public_address(host, &listener).map_err(|error| io::Error::other(error.what))?;
        let server = PageServer::start(listener, id, pages, PageState::starting(&spec.name))?;
        Ok((server, format!("http://{address}/")))
    };
    match serve() {
        Ok((server, url)) => JobPage { server: Some(server), url, final_url },
        Err(error) => {
            tracing::warn!("cannot serve the job's page: {error}");
            JobPage { server: None, url: String::new(), final_url }
        }
    }
}
