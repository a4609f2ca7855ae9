//! A gate before a NameNode: it sees what is asked, and decides when and whether it gets there.

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
pub enum Passing {
    /// It gets there, and so does the answer.
    Through,
    /// It does not get there, and nothing more does on its connection.
    Cut,
    /// It gets there, and when it is answered the connection is cut.
    Unanswered,
    /// It is forwarded when the keeper releases it; later requests overtake it.
    Held,
}

/// Policy of the proxy.
pub trait Keeper: Send + Sync + 'static {
    /// Returns true if a client may connect.
    fn lets_in(&self) -> bool {
        true
    }

    /// A question, as it is on the wire: names of methods and files can be read in it.
    fn asked(&self, question: &[u8]) -> Passing;

    /// Called when a response arrives that is not forwarded.
    fn answered(&self) {}

    /// Comes back when a question that is held may pass.
    fn holds(&self) {}
}

/// Opens a gate for the rest of the process.
pub fn open(to: SocketAddr, keeper: Arc<impl Keeper>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let keeper = Arc::clone(&keeper);
            // A rejected connection is closed.
            if keeper.lets_in() {
                thread::spawn(move || pass(stream, to, keeper));
            }
        }
    });
    address
}

/// A directory with the cluster's configuration, by which its NameNode is found behind that gate.
pub fn configure(cluster: &Cluster, gate: SocketAddr, dir: &Path) {
    let (from, namenode) = (cluster.configuration(), cluster.namenodes()[0].rpc);
    fs::create_dir_all(dir).expect("a directory");
    for file in fs::read_dir(from).expect("a configuration").flatten() {
        let Ok(text) = fs::read_to_string(file.path()) else {
            continue;
        };
        let text = text.replace(&namenode.to_string(), &gate.to_string());
        fs::write(dir.join(file.file_name()), text).expect("a file");
    }
}

fn pass(client: TcpStream, to: SocketAddr, keeper: Arc<impl Keeper>) {
    let Ok(server) = TcpStream::connect(to) else {
        return;
    };
    let cut = Arc::new(AtomicBool::new(false));
    let (from, into) = (server.try_clone(), client.try_clone());
    let (Ok(from), Ok(into)) = (from, into) else {
        return;
    };
    let (waits, hears) = (Arc::clone(&cut), Arc::clone(&keeper));
    thread::spawn(move || {
        // However it ends, both sides see it.
        let _ = answers(&from, &into, &waits, &*hears);
        close(&from, &into);
    });
    let server = Arc::new(Mutex::new(server));
    let _ = questions(&client, &server, &cut, &keeper);
    let server = server.lock().unwrap_or_else(PoisonError::into_inner);
    // Where an answer is waited for, it is the answer that ends it.
    if !cut.load(Ordering::SeqCst) {
        close(&client, &server);
    }
}

fn close(one: &TcpStream, two: &TcpStream) {
    for stream in [one, two] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn questions(
    mut client: &TcpStream,
    server: &Arc<Mutex<TcpStream>>,
    cut: &AtomicBool,
    keeper: &Arc<impl Keeper>,
) -> io::Result<()> {
    let write = |server: &Mutex<TcpStream>, bytes: &[u8]| {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.write_all(bytes)
    };
    // What every connection begins with: `hrpc`, a version, a class, a way of proof.
    let mut greeting = [0; 7];
    client.read_exact(&mut greeting)?;
    write(server, &greeting)?;
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut question = length.to_vec();
        question.resize(4 + u32::from_be_bytes(length) as usize, 0);
        client.read_exact(&mut question[4..])?;
        let passing = match is_greeting(&question) {
            true => Passing::Through,
            false => keeper.asked(&question),
        };
        match passing {
            Passing::Through => write(server, &question)?,
            Passing::Cut => return Ok(()),
            Passing::Unanswered => {
                cut.store(true, Ordering::SeqCst);
                return write(server, &question);
            }
            Passing::Held => {
                let (keeper, server) = (Arc::clone(keeper), Arc::clone(server));
                thread::spawn(move || {
                    keeper.holds();
                    // The connection may be gone by now.
                    let _ = write(&server, &question);
                });
            }
        }
    }
}

/// Returns true for a connection header, which has a negative call id and no response. Its length, the length of its
/// header, a kind and an operation precede the call id.
fn is_greeting(question: &[u8]) -> bool {
    matches!(question, [_, _, _, _, _, 0x08, _, 0x10, _, 0x18, number, ..] if number & 1 == 1)
}

fn answers(
    mut server: &TcpStream,
    mut client: &TcpStream,
    cut: &AtomicBool,
    keeper: &impl Keeper,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = server.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        if cut.load(Ordering::SeqCst) {
            keeper.answered();
            return Ok(());
        }
        client.write_all(&bytes[..read])?;
    }
}
