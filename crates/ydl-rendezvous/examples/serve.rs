//! Serves a protocol on a loopback port, for real clients: through an agent's and a master's half, in one process, with
//! a master that dies after every so many things it heard.
//!
//! ```text
//! cargo run -p ydl-rendezvous --example serve -- c10d 100
//! ```
//!
//! prints the port, serves until its standard input ends, and says then how often the master died.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc::{Sender, channel},
    thread,
};

use ydl_rendezvous::{
    Call, Desk, Errand, Kept, Peer, Porter, Protocol, Up, Work, c10d,
    gloo::{self, Member, World},
};

enum Event {
    Connected(TcpStream),
    Said(Call, Vec<u8>),
    Ended(Call),
    Over,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let protocol = words.next().unwrap_or_default();
    let life = words.next().map(|life| life.parse()).transpose()?;
    fresh(&protocol)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let (events, inbox) = channel();
    let connected = events.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if connected.send(Event::Connected(stream)).is_err() {
                return;
            }
        }
    });
    let over = events.clone();
    thread::spawn(move || {
        // Whatever ends the reading ends the service.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = over.send(Event::Over);
    });
    let mut place = Place {
        protocol,
        desk: None,
        porter: Porter::default(),
        kept: Vec::new(),
        streams: BTreeMap::new(),
        life: life.unwrap_or(u64::MAX),
        heard: 0,
        masters: 0,
    };
    for event in inbox {
        let up = match event {
            Event::Connected(stream) => {
                let (call, up) = place.porter.accept();
                stream.set_nodelay(true)?;
                let reader = stream.try_clone()?;
                place.streams.insert(call, stream);
                let events = events.clone();
                thread::spawn(move || read(call, reader, &events));
                Some(up)
            }
            Event::Said(call, bytes) => place.porter.read(call, &bytes),
            Event::Ended(call) => place
                .streams
                .remove(&call)
                .map(|_| place.porter.close(call)),
            Event::Over => break,
        };
        if let Some(up) = up {
            place.tell(up)?;
        }
    }
    eprintln!("{} masters, {} kept", place.masters, place.kept.len());
    Ok(())
}

fn read(call: Call, mut stream: TcpStream, events: &Sender<Event>) {
    let mut piece = [0; 16 << 10];
    loop {
        let event = match stream.read(&mut piece) {
            Ok(0) | Err(_) => Event::Ended(call),
            Ok(length) => Event::Said(call, piece[..length].to_vec()),
        };
        let ended = matches!(event, Event::Ended(_));
        if events.send(event).is_err() || ended {
            return;
        }
    }
}

fn fresh(protocol: &str) -> Result<Box<dyn Protocol>, Box<dyn Error>> {
    Ok(match protocol {
        "c10d" => Box::new(c10d::Store::default()),
        // Any number of ranks on one host, all of them programs of one task.
        "gloo" => {
            let size: u32 = env::var("HOROVOD_SIZE")?.parse()?;
            let members = (0..size).map(|local_rank| Member {
                task: peer().task,
                place: gloo::Place {
                    host: "localhost".to_owned(),
                    local_rank,
                },
            });
            let world = World::new(members.collect())?;
            Box::new(gloo::Store::new(world, gloo::Limits::default()))
        }
        _ => return Err(format!("`{protocol}` is none of: c10d, gloo").into()),
    })
}

fn peer() -> Peer {
    Peer {
        task: "worker:0".parse().expect("this is a task"),
        attempt: 0,
        host: "127.0.0.1".into(),
    }
}

/// An agent and a master in one place.
struct Place {
    protocol: String,
    /// None if the master has died.
    desk: Option<Desk>,
    porter: Porter,
    /// What a master leaves behind.
    kept: Vec<Kept>,
    streams: BTreeMap<Call, TcpStream>,
    /// After how much a master dies.
    life: u64,
    heard: u64,
    masters: u64,
}

impl Place {
    /// A master that dies has heard something and said nothing, but has kept what it had to keep.
    fn tell(&mut self, up: Up) -> Result<(), Box<dyn Error>> {
        self.heard += 1;
        let mut dies = self.heard.is_multiple_of(self.life);
        let mut ups = vec![up];
        while let Some(up) = ups.pop() {
            let mut desk = match self.desk.take() {
                Some(desk) => desk,
                None => {
                    self.masters += 1;
                    let mut desk = Desk::new(fresh(&self.protocol)?);
                    self.kept.iter().cloned().for_each(|kept| desk.replay(kept));
                    let mut again = self.porter.attach();
                    again.reverse();
                    // What was to be said is among what is held.
                    ups = again;
                    self.desk = Some(desk);
                    continue;
                }
            };
            let work = desk.hear(&peer(), up);
            self.kept.extend(work.keep.iter().cloned());
            for (_, refusal) in &work.refused {
                eprintln!("{refusal}");
            }
            if std::mem::take(&mut dies) {
                // Nothing of what it would have said is said; the next one begins at once.
                ups = self.porter.attach();
                continue;
            }
            self.desk = Some(desk);
            ups.extend(self.write(work)?.into_iter().rev());
        }
        Ok(())
    }

    fn write(&mut self, work: Work) -> Result<Vec<Up>, Box<dyn Error>> {
        let mut ups = Vec::new();
        for (_, down) in work.down {
            let (errand, up) = self.porter.hear(down);
            ups.extend(up);
            match errand {
                Some(Errand::Write(call, bytes)) => {
                    if let Some(stream) = self.streams.get_mut(&call) {
                        // A program that is gone says so itself.
                        let _ = stream.write_all(&bytes);
                    }
                }
                Some(Errand::Close(call)) => {
                    if let Some(stream) = self.streams.remove(&call) {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                }
                Some(Errand::Dial(..)) | None => {}
            }
        }
        Ok(ups)
    }
}
