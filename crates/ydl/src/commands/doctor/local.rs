//! Everything that a job on this machine needs.

use super::{
    super::resources::local_resources,
    checklist::Checklist,
    test_job::{self, TestJob},
};
use crate::{
    cli::{self, Cluster},
    client::jobs,
    docker::Engine,
};
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};
use ydl_core::{Span, spec::Memory};
use ydl_os::{reason, report::Report};

const MACHINE: &str = "machine";
const DOCKER: &str = "docker";
const STATE: &str = "state directory";
const JOB: &str = "job";

/// Less than this holds no job that learns anything.
const FREE_MIB_MIN: u64 = 512;

/// Every check.
pub async fn examine(
    args: &cli::DoctorArgs,
    wait: Span,
    checklist: &mut Checklist,
) -> Result<(), Report> {
    machine(checklist)?;
    docker(checklist).await?;
    checklist.record(STATE, state())?;
    if !args.no_job && checklist.can_run(JOB, &[MACHINE, STATE])? {
        let test_job =
            TestJob { cluster: Cluster::Local, queue: None, label: None, staging: None, wait };
        test_job::examine(&test_job, checklist).await?;
    }
    Ok(())
}

fn machine(checklist: &mut Checklist) -> Result<(), Report> {
    let offer = match local_resources(None) {
        Ok(offer) => offer,
        Err(why) => return checklist.fail(MACHINE, why),
    };
    let gpus = match offer.gpus.len() {
        0 => "no GPUs".to_owned(),
        _ => format!("GPUs {}", offer.gpus.join(", ")),
    };
    let found = format!("{} memory, {} vcores, {gpus}", Memory(offer.memory_mib), offer.vcores);
    match available_mib() {
        Some(free) if free < FREE_MIB_MIN => {
            let free = Memory(free);
            checklist.warn(MACHINE, format!("{found}; only {free} of the memory is free"))
        }
        _ => checklist.ok(MACHINE, found),
    }
}

fn available_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// Only jobs in images need it.
async fn docker(checklist: &mut Checklist) -> Result<(), Report> {
    let Some(engine) = Engine::find() else {
        return checklist.ok(DOCKER, "none; only jobs in images need it");
    };
    match engine.answers().await {
        Ok(()) => checklist.ok(DOCKER, "an engine answers"),
        Err(why) => {
            checklist.warn(DOCKER, format!("jobs in images cannot run, no engine answers: {why}"))
        }
    }
}

/// Returns whether jobs can be kept.
fn state() -> Result<String, Report> {
    let root = jobs::root()?;
    let refused = |error: io::Error| {
        let what = format!("`{}` cannot be written: {}", root.display(), reason(&error));
        Report::internal(what)
            .hint("make it writable, or set `XDG_STATE_HOME` to a directory that is")
    };
    let mut builder = DirBuilder::new();
    let made = builder.mode(0o700).recursive(true).create(&root);
    made.and_then(|()| touch(&root)).map_err(refused)?;
    Ok(format!("`{}` can be written", root.display()))
}

fn touch(dir: &Path) -> io::Result<()> {
    let probe: PathBuf = dir.join(format!(".doctor-{}", std::process::id()));
    let written = fs::write(&probe, "a job would write here");
    // Whether there was anything to remove is said by what was written.
    let _ = fs::remove_file(&probe);
    written
}
