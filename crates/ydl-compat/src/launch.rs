//! `launch.py`, the command line among MXNet's tools.

use super::{
    CommandAction, CompatCommand, JobFileBuilder,
    caller::CallerEnv,
    dmlc,
    flags::{Flag, switch, with_value},
    libhdfs,
    parser::{ParsedArgs, Style},
    shipping,
};
use ydl_jobfile::Location;
use ydl_os::report::Report;

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["launch.py", "mxnet-launch"],
    about: "Run a distributed MXNet job, by default with as many servers as workers",
    usage: "-n N [-s N] [--launcher yarn|local] … COMMAND…",
    style: Style::Argparse,
    flags: &[
        FLAGS,
        dmlc::RESOURCE_FLAGS,
        dmlc::SHIPPING_FLAGS,
        dmlc::IGNORED_FLAGS,
        dmlc::LOG_FLAGS,
        dmlc::REJECTED_FLAGS,
    ],
    action: CommandAction::Translate(translate),
};

const FLAGS: &[Flag] = &[
    with_value(&["-n", "--num-workers"], "N", "number of workers"),
    with_value(&["-s", "--num-servers"], "N", "number of servers [default: as many as workers]"),
    with_value(
        &["--launcher", "--cluster"],
        "CLUSTER",
        "yarn, or local for this machine [default: yarn if there is a Hadoop configuration]",
    ),
    with_value(&["--env-server"], "NAME:VALUE", "set a variable of servers; may be repeated"),
    with_value(&["--env-worker"], "NAME:VALUE", "set a variable of workers; may be repeated"),
    switch(&["--p3"], "enable MXNet's priority-based parameter propagation"),
];

fn translate(args: &mut ParsedArgs, caller: &CallerEnv) -> Result<JobFileBuilder, Report> {
    let mut builder = JobFileBuilder::empty();
    builder.set_cluster(dmlc::cluster(args, caller, "--launcher")?, caller);
    builder.set_name(args.last("--jobname"), &args.command);
    let workers = dmlc::workers(args, "-n")?;
    let servers = args.count("-s")?.or(args.count("-n")?);
    let sizes = dmlc::RoleSizes { workers, servers: servers.unwrap_or(1), flags: dmlc::ROLE_FLAGS };
    dmlc::add_roles(&mut builder, args, &sizes);
    shipping::ship(&mut builder, args);
    libhdfs::set_up(&mut builder, args, caller, "");
    dmlc::forward_variables(&mut builder, caller);
    if args.has("--p3") {
        for (name, value) in [("DMLC_PS_VAN_TYPE", "p3"), ("DMLC_PS_WATER_MARK", "10")] {
            builder.variable(None, name, value, Location::Whole);
        }
    }
    for arg in args.all("--env") {
        // Without a value it is the one of the user's shell.
        match caller.variables.get(&arg.value) {
            Some(value) => builder.variable(None, &arg.value, value, arg.location()),
            None if arg.value.contains('=') => builder.assignment(None, arg, '='),
            None if arg.value.contains(':') => builder.assignment(None, arg, ':'),
            None => {
                let what = format!("variable `{}` is not set", arg.value);
                builder.error(arg, what, "write `--env NAME=VALUE`");
            }
        }
    }
    let by_role = [("--env-worker", "worker"), ("--env-server", "server")];
    for (flag, role) in by_role {
        for arg in args.all(flag) {
            builder.assignment(Some(role), arg, ':');
        }
    }
    dmlc::set_attempts(&mut builder, args, caller)?;
    builder.put_flag(&["queue"], args, "--queue");
    dmlc::set_staging(&mut builder, args, caller, "--hdfs-tempdir");
    let words = shipping::command(&mut builder, args, caller, "--auto-file-cache", false)?;
    builder.set_command("worker", &args.name, &words);
    Ok(builder)
}
