//! `dmlc-yarn`, dmlc-core's older command line, only for YARN.

use super::{
    CommandAction, CompatCommand, JobFileBuilder,
    caller::{CallerEnv, Cluster},
    dmlc::{self, NO_JAR},
    flags::{Flag, before_command, ignored, with_value},
    libhdfs,
    parser::{ParsedArgs, Style},
    shipping,
};
use ydl_jobfile::Node;
use ydl_os::report::Report;

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["dmlc-yarn", "dmlc-yarn.py", "dmlc_yarn.py"],
    about: "Run a dmlc-core job on YARN: workers with a Rabit tracker, or workers and parameter servers",
    usage: "-n N [-s N] … COMMAND…",
    style: Style::Argparse,
    flags: &[FLAGS, dmlc::LOG_FLAGS],
    action: CommandAction::Translate(translate),
};

const FLAGS: &[Flag] = &[
    with_value(&["-n", "--nworker"], "N", "number of workers"),
    with_value(&["-s", "--server-nodes"], "N", "parameter servers; a Rabit job without any"),
    with_value(&["-q", "--queue"], "NAME", "YARN queue"),
    with_value(
        &["-ac", "--auto_file_cache"],
        "0|1",
        "ship files named in the command [default: 1]",
    ),
    with_value(
        &["--files", "--file", "-f"],
        "FILE[#NAME]",
        "files to ship with the job, separated by `#`; may be repeated",
    ),
    before_command(with_value(
        &["--archives"],
        "FILE",
        "unpack this .zip or .tar… in each task's directory; may be repeated",
    )),
    with_value(&["--jobname"], "NAME", "name of the job [default: the program's]"),
    with_value(&["--tempdir"], "DIR", "staging directory in HDFS, which gets a directory ydl-USER"),
    with_value(&["--vcores"], "N", "virtual cores of a task [default: 1]"),
    with_value(&["-mem", "--memory_mb"], "MB", "memory of a task [default: 1024]"),
    with_value(
        &["--libhdfs-opts"],
        "OPTIONS",
        "options of libhdfs's JVM; also sets the class path of programs",
    ),
    with_value(&["--ship-libcxx"], "DIR", "ship the libstdc++.so.6 in DIR and load it first"),
    with_value(&["--env"], "NAME=VALUE", "set a variable of all tasks; may be repeated"),
    with_value(&["--max-attempts"], "N", "attempts of a task [default: 3]"),
    ignored(
        &["-hip", "--host_ip"],
        "the cluster is the one in HADOOP_CONF_DIR, and the tracker runs in the job's master",
    ),
    ignored(&["--yarn-scripts"], NO_JAR),
    ignored(&["--app-classpath"], NO_JAR),
    ignored(&["-hb", "--hadoop_binary"], "ydl implements Hadoop's protocols itself"),
    ignored(&["--name-node"], "the NameNode is the one in HADOOP_CONF_DIR"),
];

fn translate(args: &mut ParsedArgs, caller: &CallerEnv) -> Result<JobFileBuilder, Report> {
    let mut builder = JobFileBuilder::empty();
    builder.set_cluster(Some(Cluster::Yarn), caller);
    builder.set_name(args.last("--jobname"), &args.command);
    let sizes = dmlc::RoleSizes {
        workers: dmlc::workers(args, "-n")?,
        servers: args.count("-s")?.unwrap_or(0),
        flags: [("worker", "", "--vcores"), ("server", "", "--vcores")],
    };
    dmlc::add_roles(&mut builder, args, &sizes);
    if let Some(arg) = args.last("-mem") {
        for role in ["worker", "server"] {
            let name = format!("DMLC_{}_MEMORY_MB", role.to_uppercase());
            builder.variable(None, &name, &arg.value, arg.location());
            if role == "worker" || sizes.servers > 0 {
                let memory = Node::text(arg.location(), format!("{}m", arg.value));
                builder.put(&["roles", role, "memory"], memory);
            }
        }
    }
    shipping::ship(&mut builder, args);
    libhdfs::set_up(&mut builder, args, caller, "--libhdfs-opts");
    dmlc::forward_variables(&mut builder, caller);
    for arg in args.all("--env") {
        builder.assignment(None, arg, '=');
    }
    dmlc::set_attempts(&mut builder, args, caller)?;
    builder.put_flag(&["queue"], args, "-q");
    dmlc::set_staging(&mut builder, args, caller, "--tempdir");
    let words = shipping::command(&mut builder, args, caller, "-ac", false)?;
    builder.set_command("worker", &args.name, &words);
    Ok(builder)
}
