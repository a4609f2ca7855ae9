//! `ydl submit`: submits a job and follows it.

use super::{
    fetch,
    follow::{Follower, InterruptSignals},
    log_tails::{LogSource, LogTails, StreamSelection},
    outcome::conclude,
    renderer::Renderer,
    resources::local_resources,
    submit_yarn,
};
use crate::{
    backend::local::{Misfit, check_fit, oversubscription},
    cli::{self, Cluster, GlobalArgs},
    client::{
        cluster::{self, configuration, named_directory},
        jobs::JobHandle,
        master_client::{MasterClient, block_on},
        submit::{create_job_dir, inputs, start_master},
        submitter,
    },
    docker, terminal,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::task::spawn_blocking;
use ydl_compat::skein;
use ydl_core::{
    JobSpec,
    spec::{Environment, JobSpecBuilder},
};
use ydl_jobfile::{self as jobfile, Diagnostics, Flags, Source};
use ydl_os::report::{Exit, Report};
use ydl_pack::{self as pack, Cache, ExpectedContent};
use ydl_proto::files::{JobDir, LocalResources, SubmittedJob};

/// Reads, checks, starts and follows a job.
pub(crate) fn run(args: cli::SubmitArgs, global: GlobalArgs) -> Result<Exit, Report> {
    match source(&args, global)? {
        Ok(source) => run_source(source, args, global),
        Err(diagnostics) => Ok(print_diagnostics(&diagnostics)),
    }
}

/// Submits a job from a source that has been read already.
pub(crate) fn run_source(
    mut source: Source,
    args: cli::SubmitArgs,
    global: GlobalArgs,
) -> Result<Exit, Report> {
    if args.show {
        return show_source(source, global);
    }
    let cluster = cluster::select(global)?;
    if cluster.is_some() {
        source.for_cluster();
    } else if global.cluster.is_none()
        && let Some(named) = named_directory()
    {
        terminal::message(format!(
            "note: there is no Hadoop configuration in `{}`; the job runs on this machine",
            named.display()
        ));
    }
    let from = source.base().to_path_buf();
    let notes = source.notes().to_vec();
    let spec = match source.job() {
        Ok(spec) => spec,
        Err(diagnostics) => return Ok(print_diagnostics(&diagnostics)),
    };
    for note in notes {
        terminal::message(format!("note: {note}"));
    }
    validate_archives(&spec)?;
    let fetch = args.fetch.clone();
    let mut id = None;
    let exit = block_on(async {
        match cluster {
            Some(cluster) => submit_yarn::run(args, global, spec, &from, &cluster, &mut id).await,
            None => submit_local(args, global, spec, &from, &mut id).await,
        }
    })?;
    // A user who detached before the job's end has nothing to fetch yet.
    if let (Some(dir), Some(id)) = (fetch, id)
        && exit != Exit::Interrupted
    {
        let operands = vec![id, dir.to_string_lossy().into_owned()];
        fetch::run(cli::FetchArgs { operands }, global)?;
    }
    Ok(exit)
}

/// Prints the job as `submit` reads it, without contacting a cluster. A job that this machine cannot run is shown as a
/// cluster would run it, unless `--cluster local` is given.
fn show_source(mut source: Source, global: GlobalArgs) -> Result<Exit, Report> {
    let mut may_be_for_cluster = false;
    match global.cluster {
        Some(Cluster::Yarn) => source.for_cluster(),
        Some(Cluster::Local) => {}
        None if configuration()?.is_some() => source.for_cluster(),
        None => may_be_for_cluster = true,
    }
    let page = source.page();
    let mut read = source.clone().job();
    if read.is_err() && may_be_for_cluster {
        source.for_cluster();
        read = source.job();
        if read.is_ok() {
            terminal::message(
                "note: this machine cannot run the job; shown as it would run on a cluster",
            );
        }
    }
    let spec = match read {
        Ok(spec) => spec,
        Err(diagnostics) => return Ok(print_diagnostics(&diagnostics)),
    };
    match global.json {
        true => terminal::print_json(&spec)?,
        false => terminal::print(page.unwrap_or_else(|| jobfile::show(&spec)))?,
    }
    Ok(Exit::Success)
}

/// Rejects local archives that are unsafe to unpack on a node.
fn validate_archives(spec: &JobSpec) -> Result<(), Report> {
    let mut environment = None;
    if let Environment::Archive(path) = &spec.environment {
        environment = Some((path, ExpectedContent::Environment));
    }
    let files = spec.files.iter().filter(|file| file.unpack);
    let files = files.map(|file| (&file.source, ExpectedContent::Anything));
    for (path, content) in files.chain(environment) {
        if !path.contains("://") {
            pack::validate(Path::new(path), content, &Cache::of_user()?)?;
        }
    }
    Ok(())
}

/// Builds the job's environment if it is a list of packages. Called after the other checks, because it may take minutes.
pub(super) fn build_environment(spec: JobSpec) -> Result<JobSpec, Report> {
    let environment = pack::build(&spec.environment, &|message| terminal::message(message))?;
    let mut draft = JobSpecBuilder::from(spec);
    draft.environment = environment;
    draft.build().map_err(|_| Report::internal("the job does not fit its own environment"))
}

fn source(
    args: &cli::SubmitArgs,
    global: GlobalArgs,
) -> Result<Result<Source, Diagnostics>, Report> {
    let flags = flags(args);
    let source = match &args.file {
        Some(file) => {
            if let Some(flag) = flags.first() {
                let what = format!("`{flag}` is for a job without a job file");
                let hint = "override a value of the file with `--set`, as in `--set roles.worker.memory=2GiB`";
                return Err(Report::bad_input(what).hint(hint));
            }
            match jobfile::load(file) {
                Ok(source) => Ok(translate_skein(source, global)?),
                Err(diagnostics) => Err(diagnostics),
            }
        }
        None => flags.source(),
    };
    Ok(source.map(|mut source| {
        args.set.iter().for_each(|set| source.set(set));
        source
    }))
}

/// Translates a skein specification to a job file. Other sources are returned unchanged.
fn translate_skein(source: Source, global: GlobalArgs) -> Result<Source, Report> {
    if !skein::is_specification(source.root()) {
        return Ok(source);
    }
    let base = source.base().to_path_buf();
    let read = |path: &str| skein::read_program(&base.join(path));
    let submitter = submitter::name(source.root(), global)?;
    let job = skein::translate(source.root(), submitter.as_deref(), &read);
    Ok(source.with_translation(job.root, job.notes, job.diagnostics))
}

/// Returns the flags that describe a job without a job file.
fn flags(args: &cli::SubmitArgs) -> Flags {
    Flags {
        name: args.name.clone(),
        framework: args.framework.clone(),
        environment: args.environment.clone(),
        workers: args.instances.clone(),
        servers: args.servers.clone(),
        memory: args.memory.clone(),
        vcores: args.vcores.clone(),
        gpus: args.gpus.clone(),
        env: args.env.clone(),
        files: args.files.clone(),
        outputs: args.outputs.clone(),
        command: args.command.clone(),
    }
}

/// Prints every diagnostic.
pub(crate) fn print_diagnostics(diagnostics: &Diagnostics) -> Exit {
    terminal::message(diagnostics.to_string());
    Exit::BadInput
}

fn misfit_report(misfit: Misfit, has_flag: bool) -> Report {
    let (what, hint) = match (misfit, has_flag) {
        (Misfit::TooLarge(what), true) => (what, "raise `--resources`, or request less"),
        (Misfit::TooLarge(what), false) => {
            (what, "request less, or allow more than this machine has with `--resources`")
        }
        (Misfit::Impossible(what), _) => (what, "leave it out of `resources`"),
        (Misfit::TooSmall(what), _) => (what, "request more: it includes ydl's own agent"),
    };
    Report::bad_input(what).hint(hint)
}

/// Creates the job's directory unless interrupted.
async fn create(
    spec: JobSpec,
    resources: LocalResources,
    from: &Path,
    extra_files: Vec<(&'static str, Vec<u8>)>,
    signals: &mut InterruptSignals,
) -> Result<(JobDir, SubmittedJob), Report> {
    let stop = Arc::new(AtomicBool::new(false));
    let (from, stopped) = (from.to_path_buf(), stop.clone());
    let mut creation =
        spawn_blocking(move || create_job_dir(spec, resources, &from, &extra_files, &stopped));
    let join_error =
        |error| Report::internal(format!("cannot create the job's directory: {error}"));
    let by = tokio::select! {
        created = &mut creation => return created.map_err(join_error)?,
        by = signals.next() => by,
    };
    stop.store(true, Ordering::Relaxed);
    if let Ok((dir, _)) = creation.await.map_err(join_error)? {
        // The directory was complete already. If its removal fails, it stays without a started job.
        let _ = std::fs::remove_dir_all(dir.path());
    }
    let what = format!("{by}: nothing was started");
    Err(Report::new(Exit::Interrupted, what))
}

async fn submit_local(
    args: cli::SubmitArgs,
    global: GlobalArgs,
    spec: JobSpec,
    from: &Path,
    id: &mut Option<String>,
) -> Result<Exit, Report> {
    let resources = local_resources(args.resources.as_deref())?;
    if let Some(misfit) = check_fit(&spec, &resources) {
        return Err(misfit_report(misfit, args.resources.is_some()));
    }
    if let Some(what) = oversubscription(&spec, &resources) {
        terminal::message(format!("warning: {what}; all tasks are started anyway"));
    }
    docker::check(&spec, args.dry_run, &|message| terminal::message(message)).await?;
    let (spec, extra_files) = inputs::list_local(spec).await?;
    if args.dry_run {
        terminal::message("the job could run on this machine; nothing was started");
        return Ok(Exit::Success);
    }
    let spec = build_environment(spec)?;
    // Listen before the master starts: Ctrl-C must not leave the master running without a client.
    let mut signals = InterruptSignals::listen()?;
    let (dir, submitted) = create(spec, resources, from, extra_files, &mut signals).await?;
    *id = Some(submitted.id.clone());
    let (_child, address) = start_master(&dir).await?;
    let job = Arc::new(JobHandle { dir, submitted, remote: None });
    let submitted_line =
        serde_json::json!({ "job": { "id": job.id(), "directory": job.dir.path() } });
    if args.detach {
        match global.json {
            true => terminal::print_json(&submitted_line)?,
            false => terminal::print(format!("{}\n", job.id()))?,
        }
        return Ok(Exit::Success);
    }
    let master = Arc::new(MasterClient::to(&job.dir, &address)?);
    let mut renderer = Renderer::following(job.id(), global);
    let output_closed = renderer.object(&submitted_line).is_err();
    if !global.json {
        renderer.note(&format!("{} started", job.id()));
    }
    let tails = LogTails::new(
        &job.dir,
        LogSource::Original,
        StreamSelection::default(),
        renderer.prefix(global),
    );
    let mut follower =
        Follower { output_closed, ..Follower::new(job.clone(), master, renderer, tails, signals) };
    let follow_end = follower.run().await?;
    conclude(follow_end, &mut follower, global).await
}
