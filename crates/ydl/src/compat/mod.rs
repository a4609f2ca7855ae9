//! The command lines of older systems, under their own names: `ydl-compat` translates them, this module runs them.

pub(crate) mod install;
mod tracker;

use crate::{
    cli::{self, ColorChoice, GlobalArgs},
    client::cluster::configuration,
    commands::submit,
    terminal,
};
use clap::CommandFactory;
use std::{env, ffi::OsString, path::Path, process::ExitCode};
use ydl_compat::{
    CallerEnv, Cluster, CommandAction, CompatCommand, JobFileBuilder,
    flags::{self, COMMON_FLAGS},
    parser::{self, ParsedArgs},
    text,
};
use ydl_jobfile::nearest;
use ydl_os::report::{Exit, Report};

/// Returns the command lines of all older systems.
pub fn all() -> impl Iterator<Item = &'static CompatCommand> {
    ydl_compat::COMMANDS.iter().chain([&tracker::COMMAND])
}

/// Returns the command of that name. Names may end in `.py` and have `_` in place of `-`, as the scripts of older systems.
fn named(name: &str) -> Option<&'static CompatCommand> {
    let exactly = all().find(|command| command.names.contains(&name));
    let stem = |name: &str| name.trim_end_matches(".py").replace('_', "-");
    let script = || {
        let script = name.strip_suffix(".py").map(stem)?;
        let has = |command: &&CompatCommand| command.names.iter().any(|own| stem(own) == script);
        all().find(has)
    };
    exactly.or_else(script)
}

/// Runs a command of an older system if its name is that of this process or the first word of `ydl`.
pub(crate) fn run_if_named() -> Option<ExitCode> {
    let mut words = env::args_os();
    let called = words.next()?;
    let called = Path::new(&called).file_name()?.to_str()?.to_owned();
    let (command, name) = match named(&called) {
        Some(command) => (command, called),
        None => {
            let first = words.next()?.into_string().ok()?;
            match named(&first) {
                Some(command) => (command, first),
                None => return unknown(&first).map(report),
            }
        }
    };
    let ran = parse_and_run(command, &name, words.collect());
    Some(ran.map_or_else(report, ExitCode::from))
}

fn report(report: Report) -> ExitCode {
    terminal::message(report.to_string());
    report.exit.into()
}

/// Returns an error for a misspelt name, unless it is closer to a command of ydl itself.
fn unknown(word: &str) -> Option<Report> {
    let cli = cli::Cli::command();
    let subcommands = cli.get_subcommands().map(|command| command.get_name());
    let names = all().flat_map(|command| command.names).copied();
    let near = nearest(word, subcommands.chain(names))?;
    named(near)?;
    let what = format!("unknown command `{word}`");
    Some(Report::bad_input(what).hint(format!("did you mean `{near}`?")))
}

fn parse_and_run(
    command: &'static CompatCommand,
    name: &str,
    words: Vec<OsString>,
) -> Result<Exit, Report> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            let what = format!("{name}: `{}` is not UTF-8", word.to_string_lossy());
            Report::bad_input(what)
        })
    };
    let words = words.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let line = words.iter().map(|word| text::shell_quoted(word));
    let line = [name.to_owned()].into_iter().chain(line);
    let line = line.collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        terminal::message(help(command, name));
        return Ok(Exit::BadInput);
    }
    let mut args = parser::parse(name, command.style, command.flags, words)?;
    if args.has("--help") {
        terminal::print(help(command, name))?;
        return Ok(Exit::Success);
    }
    if args.has("--detach") && args.has("--download") {
        let what = "`--download` and `--detach` exclude each other";
        let hint = "remove one of them; `ydl fetch JOB DIR` downloads at any time";
        return Err(args.error(what).hint(hint));
    }
    match command.action {
        CommandAction::Run(run) => run(&args),
        CommandAction::Translate(translate) => {
            let builder = translate(&mut args, &CallerEnv::current(default_cluster()))?;
            submit_job(builder, &args, &line)
        }
    }
}

/// Returns the cluster type of jobs that select none, as `ydl submit` does. An invalid configuration is reported at submit.
fn default_cluster() -> Cluster {
    match configuration() {
        Ok(None) => Cluster::Local,
        Ok(Some(_)) | Err(_) => Cluster::Yarn,
    }
}

/// Submits a job like `ydl submit`.
fn submit_job(mut builder: JobFileBuilder, args: &ParsedArgs, line: &str) -> Result<Exit, Report> {
    builder.set_environment(args);
    builder.notes.splice(0..0, args.notes.iter().cloned());
    let cluster = builder.given_cluster().map(cli::Cluster::from);
    let shown = args.has("--show");
    // Errors are reported before a cluster is contacted, if the cluster type is known.
    if shown || cluster.is_some() {
        let checked = builder.clone().into_source(args).and_then(|mut source| {
            if !builder.is_local() {
                source.for_cluster();
            }
            source.job()
        });
        if let Err(diagnostics) = checked {
            return Ok(submit::print_diagnostics(&diagnostics));
        }
    }
    if shown {
        return terminal::print(builder.to_yaml(line)).map(|()| Exit::Success);
    }
    for note in &builder.notes {
        terminal::message(format!("note: {note}"));
    }
    let global = GlobalArgs { json: false, color: ColorChoice::Auto, cluster };
    let submit_args = cli::SubmitArgs {
        detach: args.has("--detach"),
        dry_run: args.has("--dry-run"),
        fetch: args.last("--download").map(|arg| arg.value.as_str().into()),
        resources: args.last("--resources").map(|arg| arg.value.clone()),
        ..cli::SubmitArgs::default()
    };
    match builder.into_source(args) {
        Ok(source) => submit::run_source(source, submit_args, global).map_err(|report| {
            // Errors in the old command line use the old command's name.
            match report.exit {
                Exit::BadInput => {
                    Report { what: format!("{}: {}", args.name, report.what), ..report }
                }
                _ => report,
            }
        }),
        Err(diagnostics) => Ok(submit::print_diagnostics(&diagnostics)),
    }
}

fn help(command: &CompatCommand, name: &str) -> String {
    let also: Vec<_> = command.names.iter().filter(|other| **other != name).collect();
    let also = match &also[..] {
        [] => String::new(),
        all => {
            let all: Vec<_> = all.iter().map(|name| format!("`{name}`")).collect();
            format!(" Also called {}.", all.join(", "))
        }
    };
    // The other flags apply to jobs only.
    let is_job = matches!(command.action, CommandAction::Translate(_));
    let common = COMMON_FLAGS.iter().filter(|flag| is_job || flag.names[0] == "--help");
    format!(
        "{}.{also}\n\nUsage: {name} {}\n\nFlags:\n{}\nCommon flags:\n{}",
        command.about,
        command.usage,
        flags::table(command.flags.iter().copied().flatten()),
        flags::table(common),
    )
}
