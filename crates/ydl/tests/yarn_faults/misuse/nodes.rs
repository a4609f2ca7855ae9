//! Nodes that cannot run what they are given.

use super::{exclusive_cluster, must, shared_cluster};
use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Command,
};
use yarn_native::types::FinalStatus;
use ydl_testkit::yarn::{
    Workspace,
    attached::{release, wait_started, waiting_job},
    digits::wait_cleaned_up,
    wait_finished, wait_for,
};

/// Machine type of another processor in the header of a program.
const AARCH64: u16 = 183;
const X86_64: u16 = 62;
/// Offset of the machine type in the header.
const MACHINE_AT: u64 = 18;

/// Programs of this user that the nodes have fetched.
fn fetched(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let mut head = [0; 4];
        if is_dir {
            fetched(&path, found);
        } else if let Ok(mut file) = fs::File::open(&path)
            && file.read_exact(&mut head).is_ok()
            && head == *b"\x7fELF"
        {
            found.push(path);
        }
    }
}

#[test]
fn a_program_for_another_kind_of_processor_is_told_as_that() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::of(cluster, "foreign");
    // More than one node holds, so that both have fetched the program.
    let id = workspace.detach("roles: {worker: {instances: 9, memory: 512 MiB, run: 'true'}}");
    wait_finished(cluster, &id);
    wait_cleaned_up(cluster, &id);
    let mut programs = Vec::new();
    for node in cluster.nodes() {
        let cache = format!("{}/local/usercache/foreign/filecache", node.daemon);
        fetched(&cluster.directory().join(cache), &mut programs);
    }
    assert_eq!(programs.len(), 2, "{programs:?}");
    for path in &programs {
        let mut file = fs::File::options().write(true).open(path).expect("a program");
        let other = if cfg!(target_arch = "aarch64") { X86_64 } else { AARCH64 };
        file.seek(SeekFrom::Start(MACHINE_AT)).expect("its header");
        file.write_all(&other.to_le_bytes()).expect("written");
    }
    let ran = workspace.submit("roles: {worker: {memory: 128 MiB, run: 'true'}}");
    assert_eq!(ran.code, 120, "{ran:#?}");
    assert!(
        ran.stderr.contains(" failed and left no result: the node of its master cannot execute `ydl`: it is made for another kind of processor\n"),
        "{ran:#?}"
    );
    assert!(
        ran.stderr.contains("hint: `uname -m` tells a machine's kind of processor"),
        "{ran:#?}"
    );
}

/// A directory mounted over itself so that nothing in it can be executed.
struct NoExec(PathBuf);

impl NoExec {
    fn mount(dir: &Path) -> Option<NoExec> {
        let mount = |words: &[&str]| {
            let ran = Command::new("mount").args(words).arg(dir).output();
            ran.is_ok_and(|ran| ran.status.success())
        };
        let text = dir.display().to_string();
        if !mount(&["--bind", &text]) {
            return None;
        }
        let mounted = NoExec(dir.to_path_buf());
        mount(&["-o", "remount,bind,noexec"]).then_some(mounted)
    }
}

impl Drop for NoExec {
    fn drop(&mut self) {
        // Lazily: a container's working directory may still be in it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A directory that is none for a while.
struct Failed(PathBuf);

impl Failed {
    fn disk(dir: &Path) -> Failed {
        fs::rename(dir, dir.with_extension("away")).expect("it goes");
        fs::write(dir, "").expect("a file in its place");
        Failed(dir.to_path_buf())
    }
}

impl Drop for Failed {
    fn drop(&mut self) {
        let back = fs::remove_file(&self.0)
            .and_then(|()| fs::rename(self.0.with_extension("away"), &self.0));
        back.expect("it comes back");
    }
}

#[test]
fn a_node_that_executes_nothing_and_one_whose_disk_fails_are_left_for_others() {
    let cluster = &*exclusive_cluster();
    let workspace = Workspace::new(cluster);
    let node = &cluster.nodes()[1];
    let host = node.address.ip().to_string();
    let local = cluster.directory().join(&node.daemon).join("local");
    let yaml = waiting_job(&workspace, 1, "").replace(
        "memory: 64 MiB",
        &format!("memory: 128 MiB, restart: {{limit: 0}}, placement: {{nodes: [\"{host}\"]}}"),
    );
    let job = workspace.detach(&yaml);
    wait_started(&workspace, 1);
    let status = || workspace.run(&["status", "--events", "1000", &job]).stdout;
    let mut workers = 1;
    let mut scale = |more: u32| {
        workers += more;
        // A master whose node was lost is started anew.
        wait_for("a larger job", || {
            let ran = workspace.run(&["scale", &job, &format!("worker={workers}")]);
            (ran.code == 0).then_some(())
        });
        workers as usize
    };
    match NoExec::mount(&local) {
        Some(mounted) => {
            let all = scale(3);
            wait_for("that a node is told to execute nothing", || {
                let told = "cannot execute `ydl`: the node's directory is mounted `noexec`";
                status().contains(told).then_some(())
            });
            wait_started(&workspace, all);
            drop(mounted);
        }
        None => println!("this user may not mount: nodes that execute nothing are left out"),
    }
    let failed = Failed::disk(&local);
    must(cluster.wait_node(&node.daemon, "UNHEALTHY"));
    let nodes = workspace.run(&["nodes"]).stdout;
    let row = nodes.lines().find(|line| line.contains(&host));
    assert!(row.is_some_and(|row| row.contains("unhealthy")), "{nodes}");
    let all = scale(1);
    wait_started(&workspace, all + 1);
    let told = status();
    assert!(told.contains(&format!("`{host}`")) || told.contains(&host), "{told}");
    println!("{told}");
    drop(failed);
    must(cluster.wait_node(&node.daemon, "RUNNING"));
    release(&workspace);
    let report = wait_finished(cluster, &job);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    wait_cleaned_up(cluster, &job);
}
