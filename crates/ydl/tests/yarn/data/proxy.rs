//! Proxy of a NameNode that delays or drops requests.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use testbed::Cluster;

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forwards the request and its response.
    Forward,
    /// Drops the request and closes the connection.
    Disconnect,
    /// Forwards the request, and closes the connection instead of forwarding the response.
    DropResponse,
    /// Forwards the request after [`ProxyPolicy::wait_release`]; later requests overtake it.
    Hold,
}

/// Policy of the proxy.
pub trait ProxyPolicy: Send + Sync + 'static {
    /// Returns true if a client may connect.
    fn accepts(&self) -> bool {
        true
    }

    /// Decides about a request. Its bytes contain the names of method and files as text.
    fn on_request(&self, request: &[u8]) -> Decision;

    /// Called when a response arrives that is not forwarded.
    fn on_dropped_response(&self) {}

    /// Blocks until held requests may be forwarded.
    fn wait_release(&self) {}
}

/// Starts a proxy that runs until the process exits.
pub fn open(to: SocketAddr, policy: Arc<impl ProxyPolicy>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let policy = Arc::clone(&policy);
            // A rejected connection is closed.
            if policy.accepts() {
                thread::spawn(move || forward(stream, to, policy));
            }
        }
    });
    address
}

/// Writes the cluster's configuration with the proxy's address as that of the NameNode.
pub fn configure(cluster: &Cluster, proxy: SocketAddr, dir: &Path) {
    let (from, namenode) = (cluster.configuration(), cluster.namenodes()[0].rpc);
    fs::create_dir_all(dir).expect("a directory");
    for file in fs::read_dir(from).expect("a configuration").flatten() {
        let Ok(text) = fs::read_to_string(file.path()) else {
            continue;
        };
        let text = text.replace(&namenode.to_string(), &proxy.to_string());
        fs::write(dir.join(file.file_name()), text).expect("a file");
    }
}

fn forward(client: TcpStream, to: SocketAddr, policy: Arc<impl ProxyPolicy>) {
    let Ok(server) = TcpStream::connect(to) else {
        return;
    };
    let drop_response = Arc::new(AtomicBool::new(false));
    let (from, into) = (server.try_clone(), client.try_clone());
    let (Ok(from), Ok(into)) = (from, into) else {
        return;
    };
    let (reader_drop_response, reader_policy) = (Arc::clone(&drop_response), Arc::clone(&policy));
    thread::spawn(move || {
        // Close both sides on any end.
        let _ = forward_responses(&from, &into, &reader_drop_response, &*reader_policy);
        close(&from, &into);
    });
    let server = Arc::new(Mutex::new(server));
    let _ = forward_requests(&client, &server, &drop_response, &policy);
    let server = server.lock().unwrap_or_else(PoisonError::into_inner);
    // A connection that waits for its last response is closed after it.
    if !drop_response.load(Ordering::SeqCst) {
        close(&client, &server);
    }
}

fn close(one: &TcpStream, two: &TcpStream) {
    for stream in [one, two] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn forward_requests(
    mut client: &TcpStream,
    server: &Arc<Mutex<TcpStream>>,
    drop_response: &AtomicBool,
    policy: &Arc<impl ProxyPolicy>,
) -> io::Result<()> {
    let write = |server: &Mutex<TcpStream>, bytes: &[u8]| {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.write_all(bytes)
    };
    // Each connection starts with `hrpc`, version, service class and authentication protocol.
    let mut header = [0; 7];
    client.read_exact(&mut header)?;
    write(server, &header)?;
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut request = length.to_vec();
        request.resize(4 + u32::from_be_bytes(length) as usize, 0);
        client.read_exact(&mut request[4..])?;
        let decision = match is_header(&request) {
            true => Decision::Forward,
            false => policy.on_request(&request),
        };
        match decision {
            Decision::Forward => write(server, &request)?,
            Decision::Disconnect => return Ok(()),
            Decision::DropResponse => {
                drop_response.store(true, Ordering::SeqCst);
                return write(server, &request);
            }
            Decision::Hold => {
                let (policy, server) = (Arc::clone(policy), Arc::clone(server));
                thread::spawn(move || {
                    policy.wait_release();
                    // The connection may be closed already.
                    let _ = write(&server, &request);
                });
            }
        }
    }
}

/// Returns true for a connection header, which has a negative call id and no response. Its length, the length of its
/// header, a kind and an operation precede the call id.
fn is_header(request: &[u8]) -> bool {
    matches!(request, [_, _, _, _, _, 0x08, _, 0x10, _, 0x18, number, ..] if number & 1 == 1)
}

fn forward_responses(
    mut server: &TcpStream,
    mut client: &TcpStream,
    drop_response: &AtomicBool,
    policy: &impl ProxyPolicy,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = server.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        if drop_response.load(Ordering::SeqCst) {
            policy.on_dropped_response();
            return Ok(());
        }
        client.write_all(&bytes[..read])?;
    }
}
