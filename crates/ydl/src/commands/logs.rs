//! `ydl logs`: what tasks have printed.

use super::{
    follow::{Follower, Left, OnInterrupt, Signals},
    reach::{Reach, block_on, settled},
    sink::Sink,
    tails::{Prefix, Select, Stream, Tails, attempts},
};
use crate::{
    cli::{self, Manners},
    jobs::{self, Known, Standing},
    report::{Exit, Report},
    show,
};
use std::{collections::BTreeMap, sync::Arc};
use ydl_core::TaskId;

/// Prints, and goes on printing where that is asked for.
pub fn run(args: cli::Logs, manners: Manners) -> Result<Exit, Report> {
    let (job, mut select) = chosen(&args)?;
    select.attempt = args.attempt;
    select.tail = args.tail;
    select.stream = match (args.stdout, args.stderr) {
        (true, _) => Some(Stream::Stdout),
        (_, true) => Some(Stream::Stderr),
        (false, false) => None,
    };
    block_on(print(args, manners, job, select))
}

async fn print(
    args: cli::Logs,
    manners: Manners,
    job: Known,
    select: Select,
) -> Result<Exit, Report> {
    let sink = Sink::output_only(job.id(), manners);
    // One task alone needs no name before its lines.
    let prefix = match sink.prefix(manners) {
        Prefix::Task(_) if select.index.is_some() => Prefix::Raw,
        prefix => prefix,
    };
    let standing = settled(&job).await;
    let mut tails = Tails::new(&job.dir, select.clone(), prefix);
    tails.scan(args.all_attempts);
    let live = matches!(standing, Standing::Live(_));
    if let (true, Standing::Live(place)) = (args.follow, standing) {
        let reach = Arc::new(Reach::to(&job.dir, &place)?);
        let mut follower = Follower {
            job: Arc::new(job),
            reach,
            sink,
            tails,
            on_interrupt: OnInterrupt::Leave,
            peaks: BTreeMap::new(),
            deaf: false,
            next: 0,
            signals: Signals::listen()?,
            mirror: None,
        };
        return match follower.run().await? {
            Left::Over(_) | Left::Ended(_) | Left::Gone | Left::Lost => Ok(Exit::Success),
            Left::Interrupted => Ok(Exit::Interrupted),
        };
    }
    let mut sink = sink;
    let mut any = false;
    let printed = tails.finish(&mut |id, lines| {
        any = true;
        sink.output(id, lines)
    });
    let printed = printed.and_then(|()| sink.flush());
    if let (Err(_), Some(trouble)) = (&printed, sink.trouble()) {
        return Err(trouble);
    }
    if !any && printed.is_ok() {
        nothing(&job, &select, live)?;
    }
    Ok(Exit::Success)
}

/// Says why there is nothing, or that the task does not exist.
fn nothing(job: &Known, select: &Select, live: bool) -> Result<(), Report> {
    let there = attempts(&job.dir);
    if let (Some(role), Some(index)) = (&select.role, select.index) {
        // A role that was grown has more tasks than were submitted, and each of them has left a directory.
        let mut roles = job.submitted.spec.roles.iter();
        let role = roles.find(|known| known.name.as_str() == role);
        if let Some(role) = role.filter(|role| index >= role.instances)
            && !there
                .keys()
                .any(|task| task.role == role.name && task.index == index)
        {
            let what = format!("`{}` has no task `{}:{index}`", job.id(), role.name);
            let hint = match role.instances {
                1 => format!("it has `{}:0`", role.name),
                n => format!("it has `{0}:0` to `{0}:{1}`", role.name, n - 1),
            };
            return Err(Report::bad_input(what).hint(hint));
        }
    }
    if let Some(wanted) = select.attempt {
        let highest = there.values().flatten().max();
        if highest.is_none_or(|highest| *highest < wanted) {
            let what = format!("nothing has come to attempt {wanted}");
            return Err(Report::bad_input(what));
        }
    }
    let when = if live { "yet" } else { "at all" };
    show::tell(format!("nothing was printed {when}"));
    Ok(())
}

/// The job and the part of it that is meant. One word alone may be either; a job is tried first.
fn chosen(args: &cli::Logs) -> Result<(Known, Select), Report> {
    match args.which.as_slice() {
        [] => Ok((jobs::newest()?, Select::default())),
        [word] => match part(word) {
            (_, Some(_)) => with_part(jobs::newest()?, word),
            (_, None) => match (jobs::find(word), jobs::newest()) {
                (Ok(job), _) => Ok((job, Select::default())),
                (Err(_), Ok(newest)) if has_role(&newest, word) => with_part(newest, word),
                (Err(unknown), _) => Err(unknown),
            },
        },
        [job, word, ..] => with_part(jobs::find(job)?, word),
    }
}

/// `worker:3` is a role and an index, `worker` a role alone.
fn part(word: &str) -> (String, Option<u32>) {
    match word.parse::<TaskId>() {
        Ok(task) => (task.role.to_string(), Some(task.index)),
        Err(_) => (word.to_owned(), None),
    }
}

fn has_role(job: &Known, role: &str) -> bool {
    job.submitted
        .spec
        .roles
        .iter()
        .any(|known| known.name.as_str() == role)
}

fn with_part(job: Known, word: &str) -> Result<(Known, Select), Report> {
    let (role, index) = part(word);
    if !has_role(&job, &role) {
        let roles = job.submitted.spec.roles.iter();
        let roles: Vec<_> = roles.map(|role| format!("`{}`", role.name)).collect();
        let what = format!("`{}` has no role `{role}`", job.id());
        return Err(Report::bad_input(what).hint(format!("it has {}", roles.join(", "))));
    }
    let select = Select {
        role: Some(role),
        index,
        ..Select::default()
    };
    Ok((job, select))
}
