//! `ydl gateway`: forwards HTTP requests to the replicas in a file.

use super::dir_watcher::DirWatcher;
use crate::{
    cli::{self, GlobalArgs},
    terminal,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use ydl_gateway::{
    AccessLog, Bearer, Gateway, GatewayOptions, RouteTable, load_tls, parse_route_table,
};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

const ROUTES_HINT: &str = "docs/how-to/gateway.md has the format";

/// Serves until a signal arrives, then finishes the requests in progress.
pub(crate) fn run(args: cli::GatewayArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let mut routes = RoutesFile::new(args.routes.clone())?;
    let table = routes.read().map_err(|what| Report::bad_input(what).hint(ROUTES_HINT))?;
    let options = options(&args)?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Report::internal(format!("cannot start: {}", reason(&error))))?;
    runtime.block_on(async {
        let gateway = Gateway::new(table, options);
        let (listener, address) = listen("--listen", args.listen).await?;
        let metrics = match args.metrics {
            Some(address) => Some(listen("--metrics", address).await?),
            None => None,
        };
        let mut signals = StopSignals::listen()?;
        routes.watch(gateway.clone())?;
        let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let metrics_url =
            metrics.as_ref().map(|(_, address)| format!("http://{address}/metrics"));
        match global.json {
            true => terminal::print_json(&serde_json::json!({
                "url": url, "metrics": metrics_url, "version": gateway.route_version(),
            }))?,
            false => terminal::print(format!("{url}\n"))?,
        }
        let (stop, stopped) = watch::channel(());
        let wait = |mut stopped: watch::Receiver<()>| async move {
            // Fails when the sender is dropped, which is the signal.
            let _ = stopped.changed().await;
        };
        if let Some((listener, _)) = metrics {
            let (gateway, stopped) = (gateway.clone(), wait(stopped.clone()));
            tokio::spawn(async move { gateway.serve_metrics(listener, stopped).await });
        }
        let serving = gateway.serve(listener, wait(stopped));
        let stopping = async {
            signals.next().await;
            terminal::message("finishing the requests in progress");
            drop(stop);
            signals.next().await;
        };
        tokio::select! {
            cut_off = serving => {
                if cut_off > 0 {
                    terminal::message(format!("cut off {cut_off} connections after the drain time"));
                }
                Ok(Exit::Success)
            }
            () = stopping => Ok(Exit::Interrupted),
        }
    })
}

fn options(args: &cli::GatewayArgs) -> Result<GatewayOptions, Report> {
    let bearer = args.token_file.as_deref().map(Bearer::read).transpose().map_err(|error| {
        let hint = "write one token of at least 16 characters on each line";
        Report::bad_input(error.to_string()).hint(hint)
    })?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(
            load_tls(cert, key)
                .map_err(|error| Report::bad_input(error.to_string()).hint(error.hint()))?,
        ),
        _ => None,
    };
    if bearer.is_some() && tls.is_none() && !args.listen.ip().is_loopback() {
        let note = "note: tokens are sent in clear text; `--tls-cert` and `--tls-key` protect them";
        terminal::message(note);
    }
    let access_log = args.access_log.as_deref().map(AccessLog::open).transpose();
    let access_log = access_log.map_err(|error| Report::bad_input(error.to_string()))?;
    Ok(GatewayOptions { bearer, tls, access_log: access_log.map(Arc::new), ..Default::default() })
}

async fn listen(flag: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Report> {
    let cannot = |error: io::Error| {
        let what = format!("cannot listen on `{address}`: {}", reason(&error));
        Report::bad_input(what).hint(format!("choose another address with `{flag}`"))
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

/// Allows as many descriptors as the system does: each request needs two.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With a lower limit, fewer clients can connect.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> Result<StopSignals, Report> {
        let listen = |kind| {
            let cannot = |error| format!("cannot listen for signals: {}", reason(&error));
            signal(kind).map_err(|error| Report::internal(cannot(error)))
        };
        Ok(StopSignals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// File with a route table, and its last content.
struct RoutesFile {
    path: PathBuf,
    dir: PathBuf,
    content: Vec<u8>,
}

impl RoutesFile {
    fn new(path: PathBuf) -> Result<RoutesFile, Report> {
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir.to_owned(),
            Some(_) => PathBuf::from("."),
            None => return Err(Report::bad_input(format!("`{}` is no file", path.display()))),
        };
        Ok(RoutesFile { path, dir, content: Vec::new() })
    }

    /// Reads the table; an error is a message.
    fn read(&mut self) -> Result<RouteTable, String> {
        let path = self.path.display();
        self.content = fs::read(&self.path)
            .map_err(|error| format!("cannot read `{path}`: {}", reason(&error)))?;
        parse_route_table(&self.content).map_err(|error| format!("in `{path}`: {error}"))
    }

    /// Applies the table whenever its file changes or is replaced. A table that cannot be read leaves the present one.
    fn watch(mut self, gateway: Gateway) -> Result<(), Report> {
        let cannot = |error: io::Error| {
            let what = format!("cannot watch `{}`: {}", self.dir.display(), reason(&error));
            Report::internal(what).hint("raise `fs.inotify.max_user_instances`")
        };
        let mut watcher = DirWatcher::new().map_err(cannot)?;
        watcher.watch(&self.dir).map_err(cannot)?;
        tokio::spawn(async move {
            // The file may have changed before it was watched.
            self.reread(&gateway);
            while watcher.next().await.is_some() {
                self.reread(&gateway);
            }
        });
        Ok(())
    }

    fn reread(&mut self, gateway: &Gateway) {
        let earlier = std::mem::take(&mut self.content);
        let read = self.read();
        if self.content == earlier {
            return;
        }
        let version = gateway.route_version();
        let message = match read {
            Err(what) => format!("warning: {what}; the table of version {version} stays"),
            Ok(table) => {
                let (new, replicas) = (table.version, table.replicas.len());
                match gateway.apply(table) {
                    true => format!("read version {new} with {replicas} replicas"),
                    false => {
                        format!("warning: ignored version {new}: the present one is {version}")
                    }
                }
            }
        };
        terminal::message(message);
    }
}
