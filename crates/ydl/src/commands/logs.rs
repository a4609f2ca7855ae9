//! `ydl logs`: what tasks have printed.

use super::{
    aggregated,
    follow::{Afar, Follower, Left, OnInterrupt, Signals},
    reach::{Reach, block_on, settled},
    sink::Sink,
    tails::{Prefix, Select, Stream, Tails, attempts},
    waiting::{Arrived, wait_to_look},
    which::{Which, which},
};
use crate::{
    cli::{self, GlobalArgs},
    jobs::{Known, Standing},
    mirror::{Gateway, Mirror, Wanted},
    show,
};
use std::sync::Arc;
use yarn_native::types::ApplicationReport;
use ydl_core::TaskId;
use ydl_os::report::{Exit, Report};

/// Prints, and goes on printing where that is asked for.
pub fn run(args: cli::LogsArgs, global: GlobalArgs) -> Result<Exit, Report> {
    block_on(async {
        let (job, mirror, mut select) = match chosen(&args, global).await? {
            Chosen::Part(job, mirror, select) => (job, mirror, select),
            // What a job prints is in its files until the cluster has collected it.
            Chosen::Only { report, why, .. } if !report.state.is_over() => {
                let what = format!("cannot see what {} prints: {why}", report.id);
                return Err(Report::new(Exit::Unreachable, what));
            }
            Chosen::Only { report, gateway, .. } => {
                return aggregated::print(&gateway, &report, global).await;
            }
        };
        select.attempt = args.attempt;
        select.tail = args.tail;
        select.stream = match (args.stdout, args.stderr) {
            (true, _) => Some(Stream::Stdout),
            (_, true) => Some(Stream::Stderr),
            (false, false) => None,
        };
        print(args, global, *job, mirror, select).await
    })
}

async fn print(
    args: cli::LogsArgs,
    global: GlobalArgs,
    job: Known,
    mirror: Option<Arc<Mirror>>,
    select: Select,
) -> Result<Exit, Report> {
    let mut sink = Sink::output_only(job.id(), global);
    // One task alone needs no name before its lines.
    let prefix = match sink.prefix(global) {
        Prefix::Task(_) if select.index.is_some() => Prefix::Raw,
        prefix => prefix,
    };
    let mut standing = settled(&job).await;
    if let (true, Standing::Starting, Some(mirror)) = (args.follow, &standing, &mirror) {
        let watching = mirror.watch();
        let arrived = wait_to_look(mirror, &mut sink, &mut Signals::listen()?).await;
        watching.abort();
        if matches!(arrived, Arrived::Interrupted) {
            return Ok(Exit::Interrupted);
        }
        standing = settled(&job).await;
    }
    let mut tails = Tails::new(&job.dir, select.clone(), prefix);
    if let Some(mirror) = &mirror {
        let wanted = Wanted { last_only: !args.all_attempts, tail: select.tail, ..tails.wanted() };
        // Whoever has no token for its master sees what is in HDFS.
        let master = match &standing {
            Standing::Live(place) => Reach::to(&job.dir, place).ok(),
            _ => None,
        };
        let master = master.map(|reach| reach.client());
        for failure in mirror.bring_logs(&wanted, master).await {
            show::tell(format!("note: {failure}"));
        }
    }
    tails.scan(args.all_attempts);
    let live = matches!(standing, Standing::Live(_));
    if let (true, Standing::Live(place)) = (args.follow, standing) {
        let reach = Arc::new(Reach::to(&job.dir, &place)?);
        let signals = Signals::listen()?;
        let mut follower = Follower {
            on_interrupt: OnInterrupt::Leave,
            mirror: mirror.clone().map(Afar::new),
            ..Follower::new(Arc::new(job), reach, sink, tails, signals)
        };
        let _watching = mirror.map(|mirror| mirror.watch());
        return match follower.run().await? {
            Left::Over(_) | Left::Ended(_) | Left::Gone | Left::Lost => Ok(Exit::Success),
            Left::Interrupted => Ok(Exit::Interrupted),
        };
    }
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
        if let Some(mirror) = mirror.filter(|_| !live)
            && let Some(report) = mirror.last()
            && !mirror.has_attempts(&tails.wanted()).await
        {
            known(&job, &select)?;
            return aggregated::print(&mirror.gateway, &report, global).await;
        }
        nothing(&job, &select, live)?;
    }
    Ok(Exit::Success)
}

/// A task that the job never had is no task that printed nothing.
fn known(job: &Known, select: &Select) -> Result<(), Report> {
    let there = attempts(&job.dir);
    if let (Some(role), Some(index)) = (&select.role, select.index) {
        // A role that was grown has more tasks than were submitted, and each of them has left a directory.
        let mut roles = job.submitted.spec.roles.iter();
        let role = roles.find(|known| known.name.as_str() == role);
        if let Some(role) = role.filter(|role| index >= role.instances)
            && !there.keys().any(|task| task.role == role.name && task.index == index)
        {
            let what = format!("`{}` has no task `{}:{index}`", job.id(), role.name);
            let hint = match role.instances {
                1 => format!("it has `{}:0`", role.name),
                n => format!("it has `{0}:0` to `{0}:{1}`", role.name, n - 1),
            };
            return Err(Report::bad_input(what).hint(hint));
        }
    }
    Ok(())
}

/// Says why there is nothing, or that the task does not exist.
fn nothing(job: &Known, select: &Select, live: bool) -> Result<(), Report> {
    known(job, select)?;
    if let Some(wanted) = select.attempt {
        let there = attempts(&job.dir);
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

/// What is meant.
enum Chosen {
    /// A part of a job.
    Part(Box<Known>, Option<Arc<Mirror>>, Select),
    /// A job of which only its cluster knows.
    Only { report: Box<ApplicationReport>, gateway: Box<Gateway>, why: String },
}

/// The job and the part of it that is meant. One word alone may be either; a job is tried first.
async fn chosen(args: &cli::LogsArgs, global: GlobalArgs) -> Result<Chosen, Report> {
    let (found, word) = match args.which.as_slice() {
        [] => (which(None, global).await?, None),
        [word] if part(word).1.is_some() => (which(None, global).await?, Some(word)),
        [word] => match which(Some(word), global).await {
            Ok(found) => (found, None),
            Err(unknown) => match which(None, global).await {
                Ok(Which::Whole(job, mirror)) if has_role(&job, word) => {
                    (Which::Whole(job, mirror), Some(word))
                }
                Ok(_) | Err(_) => return Err(unknown),
            },
        },
        [job, word, ..] => (which(Some(job), global).await?, Some(word)),
    };
    match found {
        Which::Whole(job, mirror) => {
            let select = match word {
                Some(word) => with_part(&job, word)?,
                None => Select::default(),
            };
            Ok(Chosen::Part(job, mirror, select))
        }
        Which::Only { report, gateway, why } => Ok(Chosen::Only { report, gateway, why }),
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
    job.submitted.spec.roles.iter().any(|known| known.name.as_str() == role)
}

fn with_part(job: &Known, word: &str) -> Result<Select, Report> {
    let (role, index) = part(word);
    if !has_role(job, &role) {
        let roles = job.submitted.spec.roles.iter();
        let roles: Vec<_> = roles.map(|role| format!("`{}`", role.name)).collect();
        let what = format!("`{}` has no role `{role}`", job.id());
        return Err(Report::bad_input(what).hint(format!("it has {}", roles.join(", "))));
    }
    Ok(Select { role: Some(role), index, ..Select::default() })
}
