//! Stand-alone Rabit tracker on this machine, for workers started by another process.

mod serve;

use crate::terminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use ydl_compat::{
    Door, Leads,
    flags::{Flag, OURS, Style, Typed, noted, used},
    sheet::count,
};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

pub const DOOR: Door = Door {
    names: &["dmlc-tracker", "tracker.py"],
    about: "Serve a Rabit tracker on this machine, print the variables that lead workers to it, and end when all have \
            shut down",
    usage: "--num-workers N [--host-ip IP]",
    style: Style::Argparse,
    flags: &[FLAGS],
    leads: Leads::Here(run),
};

const FLAGS: &[Flag] = &[
    used(&["--num-workers"], "N", "workers"),
    used(&["--num-servers"], "N", "0: jobs with parameter servers are submitted, not tracked"),
    used(
        &["--host-ip"],
        "IP",
        "where workers find this machine: auto, dns for its name, or an address or name of it (auto)",
    ),
    noted(&["--log-level"], "what workers print is told as it comes"),
];

/// More than any tracker has seen.
const WORKERS_MAX: u32 = 65_536;

fn run(typed: &Typed) -> Result<Exit, Report> {
    for flag in OURS.iter().map(|flag| flag.names[0]) {
        if typed.has(flag) {
            let what = format!("`{flag}` is for a job, and a tracker is none");
            return Err(typed.wrong(what).hint("leave it out"));
        }
    }
    if let Some(word) = typed.command.first() {
        let hint = "`dmlc-submit` runs a command and has a tracker of its own";
        return Err(typed.wrong(format!("`{word}` is not run by a tracker")).hint(hint));
    }
    if count(typed, "--num-servers")?.unwrap_or(0) > 0 {
        let hint = "`dmlc-submit --num-servers N` runs it";
        return Err(typed
            .wrong("a job with parameter servers has no stand-alone tracker")
            .hint(hint));
    }
    let workers = count(typed, "--num-workers")?.ok_or_else(|| {
        typed.wrong("it is not said how many workers there are").hint("write `--num-workers N`")
    })?;
    if !(1..=WORKERS_MAX).contains(&workers) {
        let what = format!("a tracker has 1 to {WORKERS_MAX} workers, not {workers}");
        return Err(typed.wrong(what));
    }
    let (host, address) = host(typed)?;
    let cannot = |error: std::io::Error| {
        let why = reason(&error);
        Report::trouble(format!("{}: cannot listen at `{address}`: {why}", typed.door))
    };
    // Any free port: a fixed one may be in use.
    let listener = TcpListener::bind(SocketAddr::new(address, 0)).map_err(cannot)?;
    let port = listener.local_addr().map_err(cannot)?.port();
    listener.set_nonblocking(true).map_err(cannot)?;
    terminal::print(format!(
        "DMLC_TRACKER_ENV_START\nDMLC_NUM_WORKER={workers}\nDMLC_NUM_SERVER=0\nDMLC_TRACKER_URI={host}\n\
         DMLC_TRACKER_PORT={port}\nDMLC_TRACKER_ENV_END\n"
    ))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime
        .block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            serve::serve(listener, workers).await;
            Ok(())
        })
        .map_err(cannot)?;
    terminal::message("all workers have shut down");
    Ok(Exit::Success)
}

/// Returns the host name given to workers, and the address to listen on.
fn host(typed: &Typed) -> Result<(String, IpAddr), Report> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let said = typed.last("--host-ip").map_or("auto", |said| &said.value);
    match said {
        "auto" | "ip" => {
            let own = own_address();
            Ok((own.to_string(), own))
        }
        "dns" => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            match name.trim() {
                "" => Err(typed.wrong("this machine has no name").hint("name an address")),
                name => Ok((name.to_owned(), any)),
            }
        }
        // A name of this machine is as good as an address.
        text => {
            let found = (text, 0).to_socket_addrs();
            let found = found.ok().and_then(|mut all| all.next());
            let address = found.ok_or_else(|| {
                typed
                    .wrong(format!("`{text}` is no address, and no name of one"))
                    .hint("write `--host-ip 10.0.0.7`, `auto` or `dns`")
            })?;
            Ok((text.to_owned(), address.ip()))
        }
    }
}

/// The address from which this machine reaches others. Nothing is sent to find it out.
fn own_address() -> IpAddr {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("10.255.255.255:1")?;
        socket.local_addr()
    });
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}
