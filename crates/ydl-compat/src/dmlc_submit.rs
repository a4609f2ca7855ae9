//! `dmlc-submit`, as dmlc-core's tracker has it.

use super::{
    Door, Leads, dmlc,
    flags::{Flag, Style, Typed, ahead, used},
    libhdfs,
    sheet::{Here, Sheet, count},
};
use ydl_os::report::Report;

pub const DOOR: Door = Door {
    names: &["dmlc-submit"],
    about: "Run a job of dmlc-core's: workers that meet at a Rabit tracker, or workers and parameter servers of MXNet",
    usage: "--cluster yarn|local --num-workers N [--num-servers N] … COMMAND…",
    style: Style::Argparse,
    flags: &[FLAGS, dmlc::SIZES, dmlc::TRAVELS, dmlc::NOTED, dmlc::LOGS, dmlc::OTHERS],
    leads: Leads::Job(translate),
};

const FLAGS: &[Flag] = &[
    used(&["--cluster"], "CLUSTER", "yarn, or local for this machine; else DMLC_SUBMIT_CLUSTER"),
    // Its name long ago, and since then one that programs have.
    ahead(used(&["--mode"], "CLUSTER", "what --cluster was called once")),
    used(&["--num-workers"], "N", "workers"),
    used(
        &["--num-servers"],
        "N",
        "parameter servers; without any the workers meet at a Rabit tracker",
    ),
];

fn translate(typed: &mut Typed, here: &Here) -> Result<Sheet, Report> {
    let mut sheet = Sheet::empty();
    let flag = match typed.has("--cluster") {
        true => "--cluster",
        false => "--mode",
    };
    let cluster = dmlc::cluster(typed, here, flag)?;
    sheet.cluster = Some(cluster.ok_or_else(|| {
        let hint =
            "write `--cluster yarn`, or `--cluster local` for this machine, or set `DMLC_SUBMIT_CLUSTER`";
        typed.wrong("it is not said where the job runs").hint(hint)
    })?);
    let workers = dmlc::workers(typed, "--num-workers")?;
    sheet.name(typed.last("--jobname"), &typed.command);
    let sizes = dmlc::Sizes {
        workers,
        servers: count(typed, "--num-servers")?.unwrap_or(0),
        flags: dmlc::BY_ROLE,
    };
    dmlc::roles(&mut sheet, typed, &sizes);
    dmlc::travels(&mut sheet, typed);
    libhdfs::set_up(&mut sheet, typed, here, "");
    dmlc::forwarded(&mut sheet, here);
    for said in typed.all("--env") {
        sheet.assignment(None, said, '=');
    }
    dmlc::attempts(&mut sheet, typed, here)?;
    sheet.put_flag(&["queue"], typed, "--queue");
    dmlc::staging(&mut sheet, typed, here, "--hdfs-tempdir");
    let words = dmlc::command(&mut sheet, typed, "--auto-file-cache", false)?;
    sheet.command("worker", &typed.door, &words);
    Ok(sheet)
}
