//! Assignment of GPUs to tasks, over all jobs of this machine.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};
use ydl_testkit::{
    CommandOutput,
    local::{Home, kill},
};

/// Returns a `ydl` command that sees these GPUs instead of the machine's.
fn ydl(home: &Home, devices: &str) -> Command {
    let mut command = home.ydl();
    command.env("YDL_GPUS", devices).env_remove("CUDA_VISIBLE_DEVICES");
    command
}

fn name(test: &str, n: u32) -> String {
    format!("{test}-{}-{n}", std::process::id())
}

#[test]
fn tasks_see_only_their_own_gpus() {
    let home = Home::new();
    let all = [name("two", 0), name("two", 1)];
    // A gang, so that both tasks run at the same time.
    let together = "gang: true\n";
    let yaml = format!(
        "name: t\n{together}roles:\n  \
         worker: {{instances: 2, gpus: 1, shell: 'echo sees $CUDA_VISIBLE_DEVICES'}}\n  \
         idle: {{shell: 'echo sees none$CUDA_VISIBLE_DEVICES'}}\n"
    );
    home.write("job.yaml", &yaml);
    let mut ydl = ydl(&home, &all.join(","));
    let ran =
        CommandOutput::from(ydl.args(["submit", "job.yaml"]).output().expect("ydl can be started"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let seen = ran.stdout.lines().filter_map(|line| line.split_once("sees "));
    let seen: BTreeSet<&str> = seen.map(|(_, device)| device).collect();
    let expected: BTreeSet<&str> = all.iter().map(String::as_str).chain(["none"]).collect();
    assert_eq!(seen, expected, "{ran:?}");
}

#[test]
fn a_job_waits_for_a_gpu_of_another_job_until_that_is_killed() {
    let (one, two) = (Home::new(), Home::new());
    let device = name("wait", 0);
    one.write("job.yaml", "name: t\nroles: {w: {gpus: 1, shell: 'echo here; exec sleep 600'}}\n");
    let mut holder = ydl(&one, &device);
    let begun = holder.args(["submit", "--detach", "job.yaml"]).output();
    assert!(begun.expect("ydl can be started").status.success());
    one.wait_for_text(|home| home.job().join("logs/w/0/1/stdout.0"), "here");
    two.write("job.yaml", "name: t\nroles: {w: {gpus: 1, run: 'true'}}\n");
    let mut waiting = ydl(&two, &device);
    let waiting = waiting.args(["submit", "job.yaml"]).stderr(Stdio::piped());
    let mut waiting = waiting.spawn().expect("ydl");
    two.wait_for_job();
    let expected = "waits: 1 GPU needed; the node has 1, 1 in use by other tasks";
    two.wait_for_text(|home| home.job().join("master.log"), expected);
    let mut messages = BufReader::new(waiting.stderr.take().expect("a pipe")).lines();
    let reason = "0 of 1 containers allocated; 0 tasks running; waiting: 1 × `w` for a container; \
                  1 GPU needed; the node has 1, 1 in use by other tasks";
    assert!(messages.any(|line| line.expect("text") == reason), "the client gives no reason");
    for master in one.find("master") {
        kill(master.pid, 9);
    }
    assert!(waiting.wait().expect("an exit").success());
}
