//! Stand-alone Rabit tracker on this machine, for workers started by another process.

mod hello;
mod serve;

use crate::terminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use ydl_compat::{
    CommandAction, CompatCommand,
    flags::{COMMON_FLAGS, Flag, ignored, with_value},
    parser::{ParsedArgs, Style},
};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["dmlc-tracker", "tracker.py"],
    about: "Serve a Rabit tracker on this machine, print its address as variables, and end when all workers have shut down",
    usage: "--num-workers N [--host-ip IP]",
    style: Style::Argparse,
    flags: &[FLAGS],
    action: CommandAction::Run(run),
};

const FLAGS: &[Flag] = &[
    with_value(&["--num-workers"], "N", "number of workers"),
    with_value(&["--num-servers"], "N", "0: a stand-alone tracker supports no parameter servers"),
    with_value(
        &["--host-ip"],
        "IP",
        "address for workers: auto, dns for the host name, or an address or name of this machine (auto)",
    ),
    ignored(&["--log-level"], "messages of workers are always printed"),
];

/// Maximum number of workers.
const WORKERS_MAX: u32 = 65_536;

fn run(args: &ParsedArgs) -> Result<Exit, Report> {
    for flag in COMMON_FLAGS.iter().map(|flag| flag.names[0]) {
        if args.has(flag) {
            let what = format!("`{flag}` does not apply to a tracker");
            return Err(args.error(what).hint("remove it"));
        }
    }
    if let Some(word) = args.command.first() {
        let hint = "use `dmlc-submit`, which runs a command with a tracker";
        return Err(args
            .error(format!("unexpected argument `{word}`: a tracker runs no command"))
            .hint(hint));
    }
    if args.count("--num-servers")?.unwrap_or(0) > 0 {
        let hint = "use `dmlc-submit --num-servers N`";
        return Err(args.error("a stand-alone tracker supports no parameter servers").hint(hint));
    }
    let workers = args.count("--num-workers")?.ok_or_else(|| {
        args.error("the number of workers is missing").hint("add `--num-workers N`")
    })?;
    if !(1..=WORKERS_MAX).contains(&workers) {
        let what = format!("a tracker supports 1 to {WORKERS_MAX} workers, not {workers}");
        return Err(args.error(what));
    }
    let (host, address) = host(args)?;
    let cannot = |error: std::io::Error| {
        let why = reason(&error);
        Report::internal(format!("{}: cannot listen at `{address}`: {why}", args.name))
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
fn host(args: &ParsedArgs) -> Result<(String, IpAddr), Report> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let host = args.last("--host-ip").map_or("auto", |arg| &arg.value);
    match host {
        "auto" | "ip" => {
            let own = own_address();
            Ok((own.to_string(), own))
        }
        "dns" => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            match name.trim() {
                "" => Err(args
                    .error("this machine has no host name")
                    .hint("pass an address with `--host-ip`")),
                name => Ok((name.to_owned(), any)),
            }
        }
        // An address, or a name that resolves to one.
        text => {
            let found = (text, 0).to_socket_addrs();
            let found = found.ok().and_then(|mut all| all.next());
            let address = found.ok_or_else(|| {
                args.error(format!("`{text}` is neither an address nor a known host name"))
                    .hint("use `--host-ip 10.0.0.7`, `auto` or `dns`")
            })?;
            Ok((text.to_owned(), address.ip()))
        }
    }
}

/// Returns the address from which this machine reaches others. Nothing is sent.
fn own_address() -> IpAddr {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("10.255.255.255:1")?;
        socket.local_addr()
    });
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}
