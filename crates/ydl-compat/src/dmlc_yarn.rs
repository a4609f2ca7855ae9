//! `dmlc-yarn`, dmlc-core's older command line for YARN alone.

use super::{
    Door, Leads,
    dmlc::{self, NO_JAR},
    flags::{Flag, Style, Typed, ahead, noted, used},
    libhdfs,
    sheet::{Here, Sheet, count},
};
use crate::sheet::Cluster;
use ydl_jobfile::Node;
use ydl_os::report::Report;

pub const DOOR: Door = Door {
    names: &["dmlc-yarn", "dmlc-yarn.py", "dmlc_yarn.py"],
    about: "Run a job of dmlc-core's on YARN: workers that meet at a Rabit tracker, or workers and parameter servers",
    usage: "-n N [-s N] … COMMAND…",
    style: Style::Argparse,
    flags: &[FLAGS, dmlc::LOGS],
    leads: Leads::Job(translate),
};

const FLAGS: &[Flag] = &[
    used(&["-n", "--nworker"], "N", "workers"),
    used(
        &["-s", "--server-nodes"],
        "N",
        "parameter servers; without any the workers meet at a Rabit tracker",
    ),
    used(&["-q", "--queue"], "NAME", "the queue"),
    used(
        &["-ac", "--auto_file_cache"],
        "0|1",
        "whether files of the command travel with the job (1)",
    ),
    used(
        &["--files", "-f"],
        "FILE[#NAME]",
        "files that travel with the job, with `#` between several; may be repeated",
    ),
    ahead(used(
        &["--archives"],
        "FILE",
        "a .zip or .tar… that is unpacked in every task's directory; may be repeated",
    )),
    used(&["--jobname"], "NAME", "the job's name; its program's if left out"),
    used(&["--tempdir"], "DIR", "where in HDFS what travels is kept, below ydl-USER"),
    used(&["--vcores"], "N", "virtual cores of a task (1)"),
    used(&["-mem", "--memory_mb"], "MB", "memory of a task (1024)"),
    used(
        &["--libhdfs-opts"],
        "OPTIONS",
        "options of the JVM in libhdfs, whose classes programs then find",
    ),
    used(
        &["--ship-libcxx"],
        "DIR",
        "the libstdc++.so.6 in it travels with the job and is found first",
    ),
    used(&["--env"], "NAME=VALUE", "a variable of every task; may be repeated"),
    used(&["--max-attempts"], "N", "how often a task is tried (3)"),
    noted(
        &["-hip", "--host_ip"],
        "the cluster is the one that HADOOP_CONF_DIR leads to, and the tracker is in the job's master",
    ),
    noted(&["--yarn-scripts"], NO_JAR),
    noted(&["--app-classpath"], NO_JAR),
    noted(&["-hb", "--hadoop_binary"], "ydl speaks with Hadoop itself"),
    noted(&["--name-node"], "the NameNode is the one that HADOOP_CONF_DIR leads to"),
];

fn translate(typed: &mut Typed, here: &Here) -> Result<Sheet, Report> {
    let mut sheet = Sheet::empty();
    sheet.cluster = Some(Cluster::Yarn);
    sheet.name(typed.last("--jobname"), &typed.command);
    let sizes = dmlc::Sizes {
        workers: dmlc::workers(typed, "-n")?,
        servers: count(typed, "-s")?.unwrap_or(0),
        flags: [("worker", "", "--vcores"), ("server", "", "--vcores")],
    };
    dmlc::roles(&mut sheet, typed, &sizes);
    if let Some(said) = typed.last("-mem") {
        for role in ["worker", "server"] {
            let name = format!("DMLC_{}_MEMORY_MB", role.to_uppercase());
            sheet.variable(None, &name, &said.value, said.at());
            if role == "worker" || sizes.servers > 0 {
                let memory = Node::text(said.at(), format!("{}m", said.value));
                sheet.put(&["roles", role, "memory"], memory);
            }
        }
    }
    dmlc::travels(&mut sheet, typed);
    libhdfs::set_up(&mut sheet, typed, here, "--libhdfs-opts");
    dmlc::forwarded(&mut sheet, here);
    for said in typed.all("--env") {
        sheet.assignment(None, said, '=');
    }
    dmlc::attempts(&mut sheet, typed, here)?;
    sheet.put_flag(&["queue"], typed, "-q");
    dmlc::staging(&mut sheet, typed, here, "--tempdir");
    let words = dmlc::command(&mut sheet, typed, "-ac", false)?;
    sheet.command("worker", &typed.door, &words);
    Ok(sheet)
}
