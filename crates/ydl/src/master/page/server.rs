//! Server of the page: few connections, short deadlines, no effect on the job.

use super::{ClusterPages, PageState, html::render};
use hyper::{Method, StatusCode};
use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};
use tokio::{
    net::{TcpListener, lookup_host},
    runtime,
    sync::{oneshot, watch},
    time::{sleep, timeout},
};
use ydl_net::{
    request::{Head, Reply},
    server::{Limits, serve},
};

/// A proxy opens a connection for each request. Others cannot take more than this.
const LIMITS: Limits = Limits {
    connections_max: 64,
    unauthenticated_max: 32,
    handshake: Duration::from_secs(5),
    header: Duration::from_secs(5),
    idle: Duration::from_secs(1),
    body: Duration::from_secs(1),
    answer: Duration::from_secs(5),
    reply: Duration::from_secs(10),
    drain: Duration::from_secs(1),
    header_bytes_max: 16 << 10,
    body_bytes_max: 0,
    bodies_bytes_max: 0,
};
/// Timeout of a lookup of a proxy's addresses.
const LOOKUP_MAX: Duration = Duration::from_secs(30);
/// Interval of lookups: the addresses of a proxy may change.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(300);
/// Headers of each reply. The page has no scripts and loads nothing.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];

/// Server of a job's page, with its own thread: requests do not delay the job. Dropping it closes the page.
pub(in crate::master) struct PageServer {
    state: watch::Sender<PageState>,
    _stop: oneshot::Sender<()>,
}

struct PageHandler {
    id: String,
    pages: ClusterPages,
    state: watch::Receiver<PageState>,
    /// Addresses of the web proxies.
    proxies: Mutex<BTreeSet<IpAddr>>,
}

impl PageServer {
    /// Serves the page of an application.
    pub(in crate::master) fn start(
        listener: TcpListener,
        id: &str,
        pages: ClusterPages,
        state: PageState,
    ) -> io::Result<PageServer> {
        let (state, state_rx) = watch::channel(state);
        let page =
            PageHandler { id: id.to_owned(), pages, state: state_rx, proxies: Mutex::default() };
        let page = Arc::new(page);
        let listener = listener.into_std()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = async move {
            let listener = TcpListener::from_std(listener)?;
            let lookups = Arc::clone(&page);
            let respond = move |(), request: ydl_net::request::Request| {
                let reply = page.reply(request.head.peer.ip());
                std::future::ready(reply)
            };
            let stop = async {
                // Sent or dropped, it has the same meaning.
                let _ = stopped.await;
            };
            tokio::select! {
                () = lookups.look_up() => {}
                () = serve(listener, None, LIMITS, stop, admit, respond) => {}
            }
            Ok(())
        };
        thread::Builder::new().name("page".to_owned()).spawn(move || {
            if let Err(error) = block_on(serving) {
                tracing::warn!("cannot serve the job's page: {error}");
            }
        })?;
        Ok(PageServer { state, _stop: stop })
    }

    /// Returns the sender of the state to show.
    pub(in crate::master) fn state(&self) -> watch::Sender<PageState> {
        self.state.clone()
    }
}

impl PageHandler {
    fn reply(&self, peer: IpAddr) -> Reply {
        let proxies = self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = self.pages.is_open && proxies.contains(&peer.to_canonical());
        let page = render(&self.id, &self.pages, &self.state.borrow(), is_full);
        with_headers(Reply::new("text/html; charset=utf-8", page))
    }

    /// Keeps the addresses of the proxies up to date. An address is withdrawn once all hosts are resolved without it.
    async fn look_up(self: Arc<PageHandler>) {
        loop {
            let (mut found, mut is_complete) = (BTreeSet::new(), true);
            for host in &self.pages.proxies {
                match timeout(LOOKUP_MAX, lookup_host((host.as_str(), 0))).await {
                    Ok(Ok(addresses)) => {
                        found.extend(addresses.map(|address| address.ip().to_canonical()));
                        continue;
                    }
                    Ok(Err(error)) => tracing::debug!("cannot resolve `{host}`: {error}"),
                    Err(_) => tracing::debug!("cannot resolve `{host}` in time"),
                }
                is_complete = false;
            }
            self.update(found, is_complete);
            sleep(LOOKUP_INTERVAL).await;
        }
    }

    /// Replaces the known addresses, or extends them if some are missing.
    fn update(&self, found: BTreeSet<IpAddr>, is_complete: bool) {
        let mut known = self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
        match is_complete {
            true => *known = found,
            false => known.extend(found),
        }
    }
}

/// Runs a server on this thread.
fn block_on(serve: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve);
    // Do not wait for name lookups in progress.
    runtime.shutdown_background();
    ended
}

/// Accepts requests for the page. Replies have a body: the proxy turns 204 and 304 into errors.
fn admit(head: &Head) -> Result<(), Reply> {
    let text = |status, text: &'static str| {
        with_headers(Reply { status, ..Reply::new("text/plain; charset=utf-8", text) })
    };
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        let reply = text(StatusCode::METHOD_NOT_ALLOWED, "the page is read-only\n");
        return Err(reply.with_header("allow", "GET, HEAD"));
    }
    match head.path()[..] {
        [""] => Ok(()),
        _ => Err(text(StatusCode::NOT_FOUND, "the job has no such page\n")),
    }
}

fn with_headers(reply: Reply) -> Reply {
    HEADERS.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    const ID: &str = "application_1_1";

    /// Serves the page of a job named `secret`.
    async fn served(is_open: bool, proxies: &[&str]) -> (PageServer, std::net::SocketAddr) {
        let listener = ydl_net::server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let proxies = proxies.iter().map(|host| (*host).to_owned()).collect();
        let pages = ClusterPages { is_open, proxies, ..ClusterPages::default() };
        (PageServer::start(listener, ID, pages, PageState::starting("secret")).unwrap(), address)
    }

    async fn exchange(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        // The server may close without reading everything.
        let _ = stream.read_to_end(&mut reply).await;
        String::from_utf8(reply).unwrap()
    }

    async fn get(address: std::net::SocketAddr) -> String {
        exchange(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await
    }

    #[tokio::test]
    async fn a_proxy_gets_the_current_state() {
        let (server, address) = served(true, &["127.0.0.1"]).await;
        loop {
            let page = get(address).await;
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
            if page.contains("<h1>secret</h1>") {
                break;
            }
            // The proxy's name is not resolved yet.
            tokio::task::yield_now().await;
        }
        server.state().send_modify(|state| state.state = "running");
        let page = get(address).await;
        assert!(page.contains("<td>running</td>"), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    }

    #[tokio::test]
    async fn other_clients_get_no_details() {
        for (is_open, proxies) in [(true, ["192.0.2.1"]), (false, ["127.0.0.1"])] {
            let (_server, address) = served(is_open, &proxies).await;
            let page = get(address).await;
            assert!(page.contains(ID) && page.contains("starting"), "{page}");
            assert!(!page.contains("secret"), "{page}");
        }
    }

    #[tokio::test]
    async fn everything_else_is_rejected() {
        let (_server, address) = served(true, &[]).await;
        let check = async |status: &str, request: &str| {
            let reply = exchange(address, request).await;
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {reply}");
        };
        check("404", "GET /v1/view HTTP/1.0\r\n\r\n").await;
        check("404", "GET /../../etc/passwd HTTP/1.0\r\n\r\n").await;
        check("405", "PUT / HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc").await;
        check("405", "POST / HTTP/1.0\r\n\r\n").await;
        check("413", "GET / HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc").await;
        check("431", &format!("GET / HTTP/1.0\r\nx: {}\r\n\r\n", "x".repeat(32 << 10))).await;
        check("400", "\u{16}\u{3}\u{1}\r\n\r\n").await;
        check("200", "GET / HTTP/1.0\r\n\r\n").await;
    }

    #[tokio::test]
    async fn a_busy_master_does_not_delay_the_page() {
        use std::io::{Read, Write};

        let (_server, address) = served(true, &[]).await;
        // Blocks this thread, as the event loop of a busy master does.
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        // Ends because each connection has one request.
        stream.read_to_string(&mut page).unwrap();
        assert!(page.contains(ID), "{page}");
    }

    #[test]
    fn addresses_of_a_proxy_are_withdrawn_by_a_complete_lookup() {
        let (_, state) = watch::channel(PageState::starting("job"));
        let (id, pages) = (ID.to_owned(), ClusterPages::default());
        let handler = PageHandler { id, pages, state, proxies: Mutex::default() };
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let known = || handler.proxies.lock().unwrap().clone();
        handler.update([address(1)].into(), true);
        handler.update([address(2)].into(), false);
        assert_eq!(known(), [address(1), address(2)].into());
        handler.update([address(2)].into(), true);
        assert_eq!(known(), [address(2)].into());
    }

    #[tokio::test]
    async fn idle_connections_do_not_keep_the_proxy_out() {
        let (_server, address) = served(true, &[]).await;
        let mut idle = Vec::new();
        for _ in 0..LIMITS.connections_max * 2 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let page = get(address).await;
        assert!(page.contains(ID), "{page}");
    }
}
