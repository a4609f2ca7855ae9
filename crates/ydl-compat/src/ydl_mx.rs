//! `ydl-mx`, MXNetOnYARN's command line.

use super::{
    Door, Leads,
    dmlc::{self, NO_JAR},
    flags::{Flag, Said, Style, Typed, noted, switch, used},
    libhdfs,
    sheet::{Here, Sheet, count, last_of},
};
use crate::sheet::Cluster;
use ydl_jobfile::{Location, Node};
use ydl_os::report::Report;

pub const DOOR: Door = Door {
    names: &["ydl-mx"],
    about: "Run a distributed job of MXNet's, with as many servers as workers unless told otherwise",
    usage: "--n N [--s N] [--jobname NAME] … PROGRAM.py ARGUMENTS…",
    style: Style::Leading,
    flags: &[FLAGS, dmlc::SIZES, dmlc::TRAVELS, dmlc::NOTED, dmlc::LOGS, dmlc::OTHERS],
    leads: Leads::Job(translate),
};

const FLAGS: &[Flag] = &[
    used(&["--n", "-n", "--num-workers"], "N", "workers, and as many servers"),
    used(&["--s", "-s", "--num-servers"], "N", "servers, where there are not as many as workers"),
    used(
        &["--launcher", "--cluster"],
        "CLUSTER",
        "yarn, or local for this machine; a cluster if there is a Hadoop configuration",
    ),
    used(&["--gpus"], "N", "GPUs of each worker"),
    used(&["--docker"], "IMAGE", "run everything in this image"),
    used(
        &["--native"],
        "LANGUAGE",
        "python, or what needs none: scala, java, cpp; then the command is run as it is",
    ),
    used(&["--label"], "LABEL", "run on nodes of this label, with what is installed there"),
    switch(
        &["--serve"],
        "N tasks that serve, each on the port in YDL_PORT_HTTP, until the job is killed",
    ),
    used(
        &["--results"],
        "PATH",
        "what of a worker's directory goes to results/JOB in HDFS in the end; may be repeated",
    ),
    noted(&["--jar"], NO_JAR),
];

/// Targets that may precede the program, as in the original script.
const MODES: [&str; 5] = ["local", "yarn", "ssh", "mpi", "sge"];

fn translate(typed: &mut Typed, here: &Here) -> Result<Sheet, Report> {
    let mut sheet = Sheet::empty();
    sheet.cluster = dmlc::cluster(typed, here, "--launcher")?;
    let mode = typed.command.first().filter(|word| MODES.contains(&word.as_str()));
    let two =
        Said { name: "--n", value: "2".to_owned(), written: format!("{} (2 workers)", typed.door) };
    let mut workers = typed.last("--n").cloned();
    if let Some(mode) = mode.cloned() {
        typed.command.remove(0);
        sheet.cluster = Some(match mode.as_str() {
            "local" => Cluster::Local,
            "yarn" => Cluster::Yarn,
            other => {
                return Err(typed
                    .wrong(format!("jobs do not run by `{other}`"))
                    .hint("they run on `yarn` or `local`, which is this machine"));
            }
        });
        workers = workers.or(Some(two));
    }
    let workers = match workers {
        Some(said) => said,
        None => dmlc::workers(typed, "--n")?.clone(),
    };
    sheet.name(typed.last("--jobname"), &typed.command);
    let serves = typed.has("--serve");
    let servers = match count(typed, "--s")? {
        Some(servers) => servers,
        None => workers.value.parse().unwrap_or(1),
    };
    let sizes = dmlc::Sizes {
        workers: &workers,
        servers: if serves { 0 } else { servers },
        flags: dmlc::BY_ROLE,
    };
    dmlc::roles(&mut sheet, typed, &sizes);
    if serves {
        if typed.has("--s") {
            let note = "`--s` changes nothing: what serves has no parameter servers";
            sheet.notes.push(note.to_owned());
        }
        sheet.put_own(&["framework"], "none");
        // Only a gang has ports known to all tasks.
        sheet.put_own(&["gang"], true);
        sheet.add(&["roles", "worker", "ports"], Node::plain(Location::Whole, "http"));
    }
    sheet.put_flag(&["roles", "worker", "gpus"], typed, "--gpus");
    set_up(&mut sheet, typed, here)?;
    dmlc::travels(&mut sheet, typed);
    libhdfs::set_up(&mut sheet, typed, here, "");
    dmlc::forwarded(&mut sheet, here);
    for said in typed.all("--env") {
        sheet.assignment(None, said, '=');
    }
    dmlc::attempts(&mut sheet, typed, here)?;
    results(&mut sheet, typed, workers.value != "1");
    sheet.put_flag(&["queue"], typed, "--queue");
    dmlc::staging(&mut sheet, typed, here, "--hdfs-tempdir");
    let python = !is_native(typed);
    let mut words = dmlc::command(&mut sheet, typed, "--auto-file-cache", python)?;
    let is_script = words.first().is_some_and(|word| word.ends_with(".py"));
    if is_script && python {
        words.insert(0, "python".to_owned());
    }
    sheet.command("worker", &typed.door, &words);
    Ok(sheet)
}

/// Adds the results of workers. Several directories of a worker get separate destinations.
fn results(sheet: &mut Sheet, typed: &Typed, several: bool) {
    let directories = typed.all("--results");
    let directories = directories.filter(|said| said.value.ends_with('/')).count();
    for said in typed.all("--results") {
        let to = match (said.value.ends_with('/'), directories) {
            (false, _) => "results/{job}/".to_owned(),
            (true, 1) => "results/{job}".to_owned(),
            (true, _) => format!("results/{{job}}/{}", last_of(&said.value)),
        };
        sheet.output(&said.value, &to, said, several);
    }
}

fn is_native(typed: &Typed) -> bool {
    typed.last("--native").is_some_and(|said| said.value != "python")
}

/// Sets the environment of tasks: an image, what is installed on labelled nodes, nothing of Python's, or the user's own environment,
/// which travels.
fn set_up(sheet: &mut Sheet, typed: &Typed, here: &Here) -> Result<(), Report> {
    if let Some(said) = typed.last("--native") {
        let known = ["python", "scala", "java", "cpp"];
        if !known.contains(&said.value.as_str()) {
            return Err(typed
                .wrong(format!("`{}` is no language of MXNet's", said.value))
                .hint("write `--native python`, `scala`, `java` or `cpp`"));
        }
    }
    sheet.put_flag(&["node_label"], typed, "--label");
    if typed.has("--label") && sheet.is_local() {
        let note = "`--label` chooses nothing here: this machine has no labels";
        sheet.notes.push(note.to_owned());
    }
    if let Some(said) = typed.last("--docker") {
        sheet.put_said(&["environment", "docker"], said);
        return Ok(());
    }
    if typed.has("--environment") || typed.has("--label") || is_native(typed) {
        return Ok(());
    }
    match here.variable("VIRTUAL_ENV") {
        Some(active) => sheet.put_own(&["environment"], active),
        None => sheet.notes.push(
            "no virtual environment is active: `python` is what the nodes have; `--environment ./venv` takes one along"
                .to_owned(),
        ),
    }
    Ok(())
}
