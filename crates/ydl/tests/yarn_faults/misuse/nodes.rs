//! Nodes that cannot run containers.

use super::{exclusive_cluster, expect_ok, shared_cluster};
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

/// Finds the programs in a node's cache.
fn localized_programs(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let mut head = [0; 4];
        if is_dir {
            localized_programs(&path, found);
        } else if let Ok(mut file) = fs::File::open(&path)
            && file.read_exact(&mut head).is_ok()
            && head == *b"\x7fELF"
        {
            found.push(path);
        }
    }
}

#[test]
fn a_binary_for_another_processor_is_reported() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::of(cluster, "foreign");
    // More tasks than fit on one node, so that both nodes fetch the program.
    let id = workspace.detach("roles: {worker: {instances: 9, memory: 512 MiB, run: 'true'}}");
    wait_finished(cluster, &id);
    wait_cleaned_up(cluster, &id);
    let mut programs = Vec::new();
    for node in cluster.nodes() {
        let cache = format!("{}/local/usercache/foreign/filecache", node.daemon);
        localized_programs(&cluster.directory().join(cache), &mut programs);
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
        ran.stderr.contains(" failed and left no result: the master's node cannot execute `ydl`: it is made for another kind of processor\n"),
        "{ran:#?}"
    );
    assert!(
        ran.stderr.contains("hint: compare `uname -m` on this machine and on the nodes"),
        "{ran:#?}"
    );
}

/// A directory mounted over itself so that nothing in it can be executed.
struct NoExec(PathBuf);

impl NoExec {
    fn mount(dir: &Path) -> Option<NoExec> {
        let mount = |args: &[&str]| {
            let ran = Command::new("mount").args(args).arg(dir).output();
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

/// A directory replaced by a file until dropped, like a failed disk.
struct FailedDisk(PathBuf);

impl FailedDisk {
    fn replace(dir: &Path) -> FailedDisk {
        fs::rename(dir, dir.with_extension("intact")).expect("renamed");
        fs::write(dir, "").expect("a file");
        FailedDisk(dir.to_path_buf())
    }
}

impl Drop for FailedDisk {
    fn drop(&mut self) {
        let back = fs::remove_file(&self.0)
            .and_then(|()| fs::rename(self.0.with_extension("intact"), &self.0));
        back.expect("restored");
    }
}

#[test]
fn tasks_leave_nodes_with_noexec_or_failed_disks() {
    let cluster = &*exclusive_cluster();
    let workspace = Workspace::new(cluster);
    let node = &cluster.nodes()[1];
    let host = node.address.ip().to_string();
    let local = cluster.directory().join(&node.daemon).join("local");
    let yaml = waiting_job(&workspace, 1, "").replace(
        "memory: 128 MiB",
        &format!("memory: 128 MiB, restart: {{limit: 0}}, placement: {{nodes: [\"{host}\"]}}"),
    );
    let job = workspace.detach(&yaml);
    wait_started(&workspace, 1);
    let status = || workspace.run(&["status", "--events", "1000", &job]).stdout;
    let mut workers = 1;
    let mut scale = |more: u32| {
        workers += more;
        // The master restarts if its node was lost.
        wait_for("a larger job", || {
            let ran = workspace.run(&["scale", &job, &format!("worker={workers}")]);
            (ran.code == 0).then_some(())
        });
        workers as usize
    };
    match NoExec::mount(&local) {
        Some(mounted) => {
            let all = scale(3);
            wait_for("an excluded node", || {
                let message = "cannot execute `ydl`: the node's directory is mounted `noexec`";
                status().contains(message).then_some(())
            });
            wait_started(&workspace, all);
            drop(mounted);
        }
        None => println!("skipped: this user cannot mount a file system"),
    }
    let disk = FailedDisk::replace(&local);
    expect_ok(cluster.wait_node(&node.daemon, "UNHEALTHY"));
    let nodes = workspace.run(&["nodes"]).stdout;
    let row = nodes.lines().find(|line| line.contains(&host));
    assert!(row.is_some_and(|row| row.contains("unhealthy")), "{nodes}");
    let all = scale(1);
    wait_started(&workspace, all + 1);
    let message = status();
    assert!(message.contains(&format!("`{host}`")) || message.contains(&host), "{message}");
    println!("{message}");
    drop(disk);
    expect_ok(cluster.wait_node(&node.daemon, "RUNNING"));
    release(&workspace);
    let report = wait_finished(cluster, &job);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    wait_cleaned_up(cluster, &job);
}
