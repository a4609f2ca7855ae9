//! The command lines of older systems, under their own names: `ydl-compat` translates them, this module runs them.

pub mod install;
mod tracker;

use crate::{
    cli::{self, ColorChoice, GlobalArgs},
    commands::submit,
    terminal,
};
use clap::CommandFactory;
use std::{env, ffi::OsString, path::Path, process::ExitCode};
use ydl_compat::{
    Door, Here, Leads, Sheet,
    flags::{self, OURS, Typed},
    sheet,
};
use ydl_jobfile::nearest;
use ydl_os::report::{Exit, Report};

/// Every command line of an older system.
pub fn all() -> impl Iterator<Item = &'static Door> {
    ydl_compat::DOORS.iter().chain([&tracker::DOOR])
}

/// The door of that name. Older systems called their scripts by it, with `.py` behind it and with `_` or `-` within.
fn named(name: &str) -> Option<&'static Door> {
    let exactly = all().find(|door| door.names.contains(&name));
    let stem = |name: &str| name.trim_end_matches(".py").replace('_', "-");
    let script = || {
        let script = name.strip_suffix(".py").map(stem)?;
        let has = |door: &&Door| door.names.iter().any(|own| stem(own) == script);
        all().find(has)
    };
    exactly.or_else(script)
}

/// Goes through a door if this process was called by its name, or `ydl` with its name as the first word.
pub fn enter() -> Option<ExitCode> {
    let mut words = env::args_os();
    let called = words.next()?;
    let called = Path::new(&called).file_name()?.to_str()?.to_owned();
    let (door, name) = match named(&called) {
        Some(door) => (door, called),
        None => {
            let first = words.next()?.into_string().ok()?;
            match named(&first) {
                Some(door) => (door, first),
                None => return unknown(&first).map(tell),
            }
        }
    };
    let through = through(door, &name, words.collect());
    Some(through.map_or_else(tell, ExitCode::from))
}

fn tell(report: Report) -> ExitCode {
    terminal::message(report.to_string());
    report.exit.into()
}

/// A slip in the name of a door, where no word of ydl's own is as near.
fn unknown(word: &str) -> Option<Report> {
    let cli = cli::Cli::command();
    let verbs = cli.get_subcommands().map(|verb| verb.get_name());
    let doors = all().flat_map(|door| door.names).copied();
    let near = nearest(word, verbs.chain(doors))?;
    named(near)?;
    let what = format!("there is no command `{word}`");
    Some(Report::bad_input(what).hint(format!("did you mean `{near}`?")))
}

fn through(door: &'static Door, name: &str, words: Vec<OsString>) -> Result<Exit, Report> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            let what = format!("{name}: `{}` is not UTF-8", word.to_string_lossy());
            Report::bad_input(what)
        })
    };
    let words = words.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let line = words.iter().map(|word| sheet::quoted(word));
    let line = [name.to_owned()].into_iter().chain(line);
    let line = line.collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        terminal::message(help(door, name));
        return Ok(Exit::BadInput);
    }
    let mut typed = flags::read(name, door.style, door.flags, words)?;
    if typed.has("--help") {
        terminal::print(help(door, name))?;
        return Ok(Exit::Success);
    }
    if typed.has("--detach") && typed.has("--download") {
        let what = "`--download` waits for the job's end, and `--detach` does not";
        let hint = "leave one of them out; `ydl fetch JOB DIR` downloads at any time";
        return Err(typed.wrong(what).hint(hint));
    }
    match door.leads {
        Leads::Here(run) => run(&typed),
        Leads::Job(translate) => {
            let sheet = translate(&mut typed, &Here::now())?;
            run(sheet, &typed, &line)
        }
    }
}

/// The job goes the way of every other.
fn run(mut sheet: Sheet, typed: &Typed, line: &str) -> Result<Exit, Report> {
    sheet.environment(typed);
    sheet.notes.splice(0..0, typed.notes.iter().cloned());
    let cluster = sheet.cluster.map(cli::Cluster::from);
    let shown = typed.has("--show");
    // What is wrong with the words is said before any cluster is asked, where it is known which kind it is.
    if shown || cluster.is_some() {
        let checked = sheet.clone().source(typed).and_then(|mut source| {
            if !sheet.is_local() {
                source.for_cluster();
            }
            source.job()
        });
        if let Err(diagnostics) = checked {
            return Ok(submit::refuse(&diagnostics));
        }
    }
    if shown {
        return terminal::print(sheet.page(line)).map(|()| Exit::Success);
    }
    for note in &sheet.notes {
        terminal::message(format!("note: {note}"));
    }
    let global = GlobalArgs { json: false, color: ColorChoice::Auto, cluster };
    let args = cli::SubmitArgs {
        detach: typed.has("--detach"),
        dry_run: typed.has("--dry-run"),
        fetch: typed.last("--download").map(|said| said.value.as_str().into()),
        resources: typed.last("--resources").map(|said| said.value.clone()),
        ..cli::SubmitArgs::default()
    };
    match sheet.source(typed) {
        Ok(source) => submit::run_source(source, args, global).map_err(|report| {
            // Errors in the old command line use the old command's name.
            match report.exit {
                Exit::BadInput => {
                    Report { what: format!("{}: {}", typed.door, report.what), ..report }
                }
                _ => report,
            }
        }),
        Err(diagnostics) => Ok(submit::refuse(&diagnostics)),
    }
}

fn help(door: &Door, name: &str) -> String {
    let also: Vec<_> = door.names.iter().filter(|other| **other != name).collect();
    let also = match &also[..] {
        [] => String::new(),
        all => {
            let all: Vec<_> = all.iter().map(|name| format!("`{name}`")).collect();
            format!(" Also called {}.", all.join(", "))
        }
    };
    // What runs here is no job, for which the others are.
    let is_job = matches!(door.leads, Leads::Job(_));
    let ours = OURS.iter().filter(|flag| is_job || flag.names[0] == "--help");
    format!(
        "{}.{also}\n\nUsage: {name} {}\n\nFlags:\n{}\nOf every such command:\n{}",
        door.about,
        door.usage,
        flags::table(door.flags.iter().copied().flatten()),
        flags::table(ours),
    )
}
