//! `ydl-mx`, the command line of MXNetOnYARN.

use super::{
    CommandAction, CompatCommand, JobFileBuilder,
    caller::{CallerEnv, Cluster},
    dmlc::{self, NO_JAR},
    flags::{Flag, ignored, switch, with_value},
    libhdfs,
    parser::{FlagValue, ParsedArgs, Style},
    shipping,
    text::file_name,
};
use ydl_jobfile::{Location, Node};
use ydl_os::report::Report;

pub(crate) const COMMAND: CompatCommand = CompatCommand {
    names: &["ydl-mx"],
    about: "Run a distributed MXNet job, by default with as many servers as workers",
    usage: "--n N [--s N] [--jobname NAME] … PROGRAM.py ARGUMENTS…",
    style: Style::Leading,
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
    with_value(&["--n", "-n", "--num-workers"], "N", "number of workers"),
    with_value(
        &["--s", "-s", "--num-servers"],
        "N",
        "number of servers [default: as many as workers]",
    ),
    with_value(
        &["--launcher", "--cluster"],
        "CLUSTER",
        "yarn, or local for this machine [default: yarn if there is a Hadoop configuration]",
    ),
    with_value(&["--gpus"], "N", "GPUs of each worker"),
    with_value(&["--docker"], "IMAGE", "run all tasks in this image"),
    with_value(
        &["--native"],
        "LANGUAGE",
        "python, or scala, java or cpp, which run the command unchanged [default: python]",
    ),
    with_value(
        &["--label"],
        "LABEL",
        "run on nodes with this label, with the software installed there",
    ),
    switch(
        &["--serve"],
        "run N serving tasks, each on the port in YDL_PORT_HTTP, until the job is killed",
    ),
    with_value(
        &["--results"],
        "PATH",
        "copy this path of a worker's directory to results/JOB in HDFS at the end; may be repeated",
    ),
    ignored(&["--jar"], NO_JAR),
];

/// Cluster types that may precede the program, as in the original script.
const MODES: [&str; 5] = ["local", "yarn", "ssh", "mpi", "sge"];

fn translate(args: &mut ParsedArgs, caller: &CallerEnv) -> Result<JobFileBuilder, Report> {
    let mut builder = JobFileBuilder::empty();
    let mut cluster = dmlc::cluster(args, caller, "--launcher")?;
    let mode = args.command.first().filter(|word| MODES.contains(&word.as_str()));
    let default = FlagValue {
        name: "--n",
        value: "2".to_owned(),
        written: format!("{} (2 workers)", args.name),
    };
    let mut workers = args.last("--n").cloned();
    if let Some(mode) = mode.cloned() {
        args.command.remove(0);
        cluster = Some(match mode.as_str() {
            "local" => Cluster::Local,
            "yarn" => Cluster::Yarn,
            other => {
                return Err(args
                    .error(format!("cluster type `{other}` is not supported"))
                    .hint("use `yarn`, or `local` for this machine"));
            }
        });
        workers = workers.or(Some(default));
    }
    let workers = match workers {
        Some(arg) => arg,
        None => dmlc::workers(args, "--n")?.clone(),
    };
    builder.set_cluster(cluster, caller);
    builder.set_name(args.last("--jobname"), &args.command);
    let serves = args.has("--serve");
    let servers = match args.count("--s")? {
        Some(servers) => servers,
        None => workers.value.parse().unwrap_or(1),
    };
    let sizes = dmlc::RoleSizes {
        workers: &workers,
        servers: if serves { 0 } else { servers },
        flags: dmlc::ROLE_FLAGS,
    };
    dmlc::add_roles(&mut builder, args, &sizes);
    if serves {
        if args.has("--s") {
            let note = "`--s` has no effect: serving tasks have no parameter servers";
            builder.notes.push(note.to_owned());
        }
        builder.put_default(&["framework"], "none");
        // Only a gang has ports known to all tasks.
        builder.put_default(&["gang"], true);
        builder.append(&["roles", "worker", "ports"], Node::plain(Location::Whole, "http"));
    }
    builder.put_flag(&["roles", "worker", "gpus"], args, "--gpus");
    set_up(&mut builder, args)?;
    shipping::ship(&mut builder, args);
    libhdfs::set_up(&mut builder, args, caller, "");
    dmlc::forward_variables(&mut builder, caller);
    for arg in args.all("--env") {
        builder.assignment(None, arg, '=');
    }
    dmlc::set_attempts(&mut builder, args, caller)?;
    results(&mut builder, args, workers.value != "1");
    builder.put_flag(&["queue"], args, "--queue");
    dmlc::set_staging(&mut builder, args, caller, "--hdfs-tempdir");
    let python = !is_native(args);
    let mut words = shipping::command(&mut builder, args, caller, "--auto-file-cache", python)?;
    let is_script = words.first().is_some_and(|word| word.ends_with(".py"));
    if is_script && python {
        words.insert(0, "python".to_owned());
    }
    builder.set_command("worker", &args.name, &words);
    Ok(builder)
}

/// Adds the results of workers. Several directories of a worker get separate destinations.
fn results(builder: &mut JobFileBuilder, args: &ParsedArgs, several: bool) {
    if builder.is_local() {
        let note =
            "`--results` has no effect: on this machine tasks write to the current directory";
        builder.notes.extend(args.has("--results").then(|| note.to_owned()));
        return;
    }
    let directories = args.all("--results");
    let directories = directories.filter(|arg| arg.value.ends_with('/')).count();
    for arg in args.all("--results") {
        let to = match (arg.value.ends_with('/'), directories) {
            (false, _) => "results/{job}/".to_owned(),
            (true, 1) => "results/{job}".to_owned(),
            (true, _) => format!("results/{{job}}/{}", file_name(&arg.value)),
        };
        builder.output(&arg.value, &to, arg, several);
    }
}

fn is_native(args: &ParsedArgs) -> bool {
    args.last("--native").is_some_and(|arg| arg.value != "python")
}

/// Sets the nodes and the image of tasks.
fn set_up(builder: &mut JobFileBuilder, args: &ParsedArgs) -> Result<(), Report> {
    if let Some(arg) = args.last("--native") {
        let known = ["python", "scala", "java", "cpp"];
        if !known.contains(&arg.value.as_str()) {
            return Err(args
                .error(format!("unknown language `{}`", arg.value))
                .hint("write `--native python`, `scala`, `java` or `cpp`"));
        }
    }
    builder.put_flag(&["node_label"], args, "--label");
    if args.has("--label") && builder.is_local() {
        let note = "`--label` has no effect: this machine has no labels";
        builder.notes.push(note.to_owned());
    }
    builder.put_flag(&["environment", "docker"], args, "--docker");
    Ok(())
}
