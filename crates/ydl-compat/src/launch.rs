//! `launch.py`, as it lies among MXNet's tools.

use super::{
    Door, Leads, dmlc,
    flags::{Flag, Style, Typed, switch, used},
    libhdfs,
    sheet::{Here, Sheet, count},
};
use ydl_jobfile::Location;
use ydl_os::report::Report;

pub const DOOR: Door = Door {
    names: &["launch.py", "mxnet-launch"],
    about: "Run a distributed job of MXNet's, with as many servers as workers unless told otherwise",
    usage: "-n N [-s N] [--launcher yarn|local] … COMMAND…",
    style: Style::Argparse,
    flags: &[FLAGS, dmlc::SIZES, dmlc::TRAVELS, dmlc::NOTED, dmlc::LOGS, dmlc::OTHERS],
    leads: Leads::Job(translate),
};

const FLAGS: &[Flag] = &[
    used(&["-n", "--num-workers"], "N", "workers"),
    used(&["-s", "--num-servers"], "N", "servers; as many as workers if left out"),
    used(
        &["--launcher", "--cluster"],
        "CLUSTER",
        "yarn, or local for this machine; a cluster if there is a Hadoop configuration",
    ),
    used(&["--env-server"], "NAME:VALUE", "a variable of servers; may be repeated"),
    used(&["--env-worker"], "NAME:VALUE", "a variable of workers; may be repeated"),
    switch(&["--p3"], "MXNet sends what is needed first before the rest"),
];

fn translate(typed: &mut Typed, here: &Here) -> Result<Sheet, Report> {
    let mut sheet = Sheet::empty();
    sheet.cluster = dmlc::cluster(typed, here, "--launcher")?;
    sheet.name(typed.last("--jobname"), &typed.command);
    let workers = dmlc::workers(typed, "-n")?;
    let servers = count(typed, "-s")?.or(count(typed, "-n")?);
    let sizes = dmlc::Sizes { workers, servers: servers.unwrap_or(1), flags: dmlc::BY_ROLE };
    dmlc::roles(&mut sheet, typed, &sizes);
    dmlc::travels(&mut sheet, typed);
    libhdfs::set_up(&mut sheet, typed, here, "");
    dmlc::forwarded(&mut sheet, here);
    if typed.has("--p3") {
        for (name, value) in [("DMLC_PS_VAN_TYPE", "p3"), ("DMLC_PS_WATER_MARK", "10")] {
            sheet.variable(None, name, value, Location::Whole);
        }
    }
    for said in typed.all("--env") {
        // A name alone takes its value from the user's shell.
        match here.variables.get(&said.value) {
            Some(value) => sheet.variable(None, &said.value, value, said.at()),
            None if said.value.contains('=') => sheet.assignment(None, said, '='),
            None if said.value.contains(':') => sheet.assignment(None, said, ':'),
            None => {
                let what = format!("there is no variable `{}` here", said.value);
                sheet.wrong(said, what, "write `--env NAME=VALUE`");
            }
        }
    }
    let by_role = [("--env-worker", "worker"), ("--env-server", "server")];
    for (flag, role) in by_role {
        for said in typed.all(flag) {
            sheet.assignment(Some(role), said, ':');
        }
    }
    dmlc::attempts(&mut sheet, typed, here)?;
    sheet.put_flag(&["queue"], typed, "--queue");
    dmlc::staging(&mut sheet, typed, here, "--hdfs-tempdir");
    let words = dmlc::command(&mut sheet, typed, "--auto-file-cache", false)?;
    sheet.command("worker", &typed.door, &words);
    Ok(sheet)
}
