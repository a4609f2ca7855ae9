//! `dmlc-submit`, the command line of dmlc-core's tracker.

use super::{
    CommandAction, CompatCommand, JobFileBuilder,
    caller::CallerEnv,
    dmlc,
    flags::{Flag, before_command, with_value},
    libhdfs,
    parser::{ParsedArgs, Style},
    shipping,
};
use ydl_os::report::Report;

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["dmlc-submit"],
    about: "Run a dmlc-core job: workers with a Rabit tracker, or workers and parameter servers of MXNet",
    usage: "--cluster yarn|local --num-workers N [--num-servers N] … COMMAND…",
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
    with_value(
        &["--cluster"],
        "CLUSTER",
        "yarn, or local for this machine [default: DMLC_SUBMIT_CLUSTER]",
    ),
    // Old name of `--cluster`. Programs have flags of that name, too.
    before_command(with_value(&["--mode"], "CLUSTER", "old name of --cluster")),
    with_value(&["--num-workers"], "N", "number of workers"),
    with_value(&["--num-servers"], "N", "parameter servers; a Rabit job without any"),
];

fn translate(args: &mut ParsedArgs, caller: &CallerEnv) -> Result<JobFileBuilder, Report> {
    let mut builder = JobFileBuilder::empty();
    let flag = match args.has("--cluster") {
        true => "--cluster",
        false => "--mode",
    };
    let cluster = dmlc::cluster(args, caller, flag)?;
    if cluster.is_none() {
        let hint = "add `--cluster yarn`, or `--cluster local` for this machine, or set `DMLC_SUBMIT_CLUSTER`";
        return Err(args.error("the cluster type is missing").hint(hint));
    }
    builder.set_cluster(cluster, caller);
    let workers = dmlc::workers(args, "--num-workers")?;
    builder.set_name(args.last("--jobname"), &args.command);
    let sizes = dmlc::RoleSizes {
        workers,
        servers: args.count("--num-servers")?.unwrap_or(0),
        flags: dmlc::ROLE_FLAGS,
    };
    dmlc::add_roles(&mut builder, args, &sizes);
    shipping::ship(&mut builder, args);
    libhdfs::set_up(&mut builder, args, caller, "");
    dmlc::forward_variables(&mut builder, caller);
    for arg in args.all("--env") {
        builder.assignment(None, arg, '=');
    }
    dmlc::set_attempts(&mut builder, args, caller)?;
    builder.put_flag(&["queue"], args, "--queue");
    dmlc::set_staging(&mut builder, args, caller, "--hdfs-tempdir");
    let words = shipping::command(&mut builder, args, caller, "--auto-file-cache", false)?;
    builder.set_command("worker", &args.name, &words);
    Ok(builder)
}
