//! Checks at submit that the images of a job run on this machine.

use super::{
    engine::{CommandOutput, Engine},
    run::{BINARY, mount},
};
use std::{collections::BTreeSet, path::Path, time::Duration};
use ydl_core::JobSpec;
use ydl_os::report::{Exit, Report};

/// Timeout of an image pull over a slow network.
const PULL_MAX: Duration = Duration::from_secs(60 * 60);
/// Timeout of one small container.
const RUN_MAX: Duration = Duration::from_secs(120);
const INSPECT_MAX: Duration = Duration::from_secs(30);

/// Checks that every image of the job is present and can run `ydl`. A dry run pulls and runs nothing.
/// `report_step` receives a message about each slow step.
pub(crate) async fn check(
    spec: &JobSpec,
    dry_run: bool,
    report_step: &dyn Fn(String),
) -> Result<(), Report> {
    let images: BTreeSet<_> = spec.images().map(|(_, image)| image.name.as_str()).collect();
    let Some(first) = images.first() else {
        return Ok(());
    };
    let Some(engine) = Engine::find() else {
        let what = format!(
            "the job runs in the image `{first}`, and there is no `docker` command on this machine"
        );
        let hint = "install docker, or submit the job to a cluster that runs images";
        return Err(Report::bad_input(what).hint(hint));
    };
    if let Err(why) = engine.answers().await {
        let what =
            format!("the job runs in the image `{first}`, and no docker engine answers: {why}");
        let hint = match why.contains("permission denied") {
            true => "add your user to the group `docker`",
            false => "start it, e.g. with `systemctl start docker`; check it with `docker version`",
        };
        return Err(Report::new(Exit::Unreachable, what).hint(hint));
    }
    for image in images {
        let found = engine.run(&["image", "inspect", image], INSPECT_MAX).await;
        match (found.failed, dry_run) {
            (None, true) => {}
            (None, false) => test_run(&engine, image).await?,
            (Some(_), true) => {
                report_step(format!("note: the image `{image}` would be fetched first"))
            }
            (Some(_), false) => {
                pull(&engine, image, report_step).await?;
                test_run(&engine, image).await?;
            }
        }
    }
    Ok(())
}

async fn pull(engine: &Engine, image: &str, report_step: &dyn Fn(String)) -> Result<(), Report> {
    report_step(format!("fetching the image `{image}`"));
    let pulled = engine.run(&["pull", "--quiet", image], PULL_MAX).await;
    pulled.failed.map_or(Ok(()), |why| {
        let what =
            format!("the image `{image}` is not on this machine and cannot be fetched: {why}");
        let hint = "check its name and tag; some registries want a `docker login` first";
        Err(Report::bad_input(what).hint(hint))
    })
}

/// Runs this binary in the image once, to report missing requirements before any task does.
async fn test_run(engine: &Engine, image: &str) -> Result<(), Report> {
    let binary = std::env::current_exe()
        .map_err(|error| Report::internal(format!("cannot find ydl itself: {error}")))?;
    let bind = mount(&binary, Path::new(BINARY), false);
    let args = [
        "run",
        "--rm",
        "--network",
        "none",
        "--log-driver",
        "none",
        "--label",
        "ydl.check",
        "--mount",
        &bind,
        "--entrypoint",
        BINARY,
        image,
        "--version",
    ];
    let CommandOutput { out, failed } = engine.run(&args, RUN_MAX).await;
    let Some(why) = failed else {
        if out.starts_with("ydl ") {
            return Ok(());
        }
        let what = format!("`ydl` does not answer in the image `{image}`");
        return Err(Report::internal(what).hint("try `docker run` by hand"));
    };
    let what = format!("`ydl` cannot run in the image `{image}`: {why}");
    Err(Report::bad_input(what).hint(remedy(&why, &binary)))
}

fn remedy(why: &str, binary: &Path) -> String {
    if why.contains("GLIBC") || why.contains("shared libraries") {
        "the image's C library is older than this build of ydl needs: use a newer image, or a ydl built on an older system".into()
    } else if why.contains("no such file or directory") && why.contains(BINARY) {
        "the image has no GNU C library, as those of Alpine Linux have none: use one based on Debian, Ubuntu or the like".into()
    } else if why.contains("exec format error") {
        "the image is made for another kind of processor".into()
    } else if why.contains("bind source path does not exist") {
        format!(
            "the docker engine does not see `{}`: it may be on another machine, and must be on this one",
            binary.display()
        )
    } else {
        "`docker run` by hand may tell more".into()
    }
}
