//! Checks of the local machine.

use super::{
    super::resources::{local_resources, meminfo_mib},
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

/// Free memory below which a training job is unlikely to fit.
const FREE_MIB_MIN: u64 = 512;

/// Runs every check of the local machine.
pub(crate) async fn run_checks(
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
        test_job::run_check(&test_job, checklist).await?;
    }
    Ok(())
}

fn machine(checklist: &mut Checklist) -> Result<(), Report> {
    let resources = match local_resources(None) {
        Ok(resources) => resources,
        Err(why) => return checklist.fail(MACHINE, why),
    };
    let gpus = match resources.gpus.len() {
        0 => "no GPUs".to_owned(),
        _ => format!("GPUs {}", resources.gpus.join(", ")),
    };
    let memory = Memory(resources.memory_mib);
    let message = format!("{memory} memory, {} vcores, {gpus}", resources.vcores);
    match meminfo_mib("MemAvailable") {
        Some(free) if free < FREE_MIB_MIN => {
            let free = Memory(free);
            checklist.warn(MACHINE, format!("{message}; only {free} of the memory is free"))
        }
        _ => checklist.ok(MACHINE, message),
    }
}

/// Checks the container engine. A missing one is no failure: only jobs in images need it.
async fn docker(checklist: &mut Checklist) -> Result<(), Report> {
    let Some(engine) = Engine::find() else {
        return checklist.ok(DOCKER, "none; only jobs in images need it");
    };
    match engine.answers().await {
        Ok(()) => checklist.ok(DOCKER, "the engine responds"),
        Err(why) => checklist
            .warn(DOCKER, format!("jobs in images cannot run, the engine does not respond: {why}")),
    }
}

/// Checks that the directory of local jobs is writable.
fn state() -> Result<String, Report> {
    let root = jobs::root()?;
    let write_error = |error: io::Error| {
        let what = format!("cannot write `{}`: {}", root.display(), reason(&error));
        Report::internal(what)
            .hint("make it writable, or set `XDG_STATE_HOME` to a directory that is")
    };
    let mut builder = DirBuilder::new();
    let created = builder.mode(0o700).recursive(true).create(&root);
    created.and_then(|()| touch(&root)).map_err(write_error)?;
    Ok(format!("`{}` is writable", root.display()))
}

fn touch(dir: &Path) -> io::Result<()> {
    let probe: PathBuf = dir.join(format!(".doctor-{}", std::process::id()));
    let written = fs::write(&probe, "a job would write here");
    // The result of the write decides; it also shows whether there is a file to remove.
    let _ = fs::remove_file(&probe);
    written
}
