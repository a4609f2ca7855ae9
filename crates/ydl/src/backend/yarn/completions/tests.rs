//! Diagnostics of real NodeManagers and ResourceManagers.

use super::{ExitStatus, container_exit, summary_line};
use ydl_core::ContainerExit;

const DUMP: &str = "Dump of the process-tree for container_1794778261818_0005_01_000004 :\n\t|- PID PPID PGRPID \
    SESSID CMD_NAME USER_MODE_TIME(MILLIS) SYSTEM_TIME(MILLIS) VMEM_USAGE(BYTES) RSSMEM_USAGE(PAGES) FULL_CMD_LINE\n\
    \t|- 32067 31987 31987 31987 (tail) 0 13 152113152 36873 tail \n\n[2026-11-15 21:31:12.710]Container killed on \
    request. Exit code is 143\n[2026-11-15 21:31:12.710]Container exited with a non-zero exit code 143. \n";

/// Returns the exit for a memory kill with this sentence and the dump of its processes.
fn killed(status: i32, sentence: &str, had_mib: u64) -> ContainerExit {
    let diagnostics = format!("[2026-11-15 21:31:12.599]{sentence}\n{DUMP}");
    container_exit(ExitStatus::from(status), &diagnostics, had_mib)
}

fn limit(used_mib: u64, limit_mib: u64) -> ContainerExit {
    ContainerExit::MemoryLimit { used_mib, limit_mib }
}

#[test]
fn memory_kills_report_used_and_allowed_bytes_for_every_hadoop_version() {
    // Hadoop 2.10.2.
    let old = "Container [pid=31014,containerID=container_1794777967850_0003_01_000004] is running beyond physical \
               memory limits. Current usage: 167.0 MB of 128 MB physical memory used; 173.7 MB of 268.8 MB virtual \
               memory used. Killing container.";
    assert_eq!(killed(-104, old, 128), limit(167, 128));
    let old = "Container [pid=7,containerID=container_1794777967850_0003_01_000004] is running beyond virtual memory \
               limits. Current usage: 10.0 MB of 128 MB physical memory used; 1.5 GB of 268.8 MB virtual memory \
               used. Killing container.";
    assert_eq!(killed(-103, old, 128), limit(1536, 268));
    // 3.3.6, 3.4.2 and 3.5.0 report the excess in bytes.
    let reports = [
        (24_481_792, "151.3 MB of 128 MB physical memory used; 157.7 MB of 268.8 MB", 152),
        (83_660_800, "207.8 MB of 128 MB physical memory used; 211.5 MB of 268.8 MB", 208),
        (81_768_448, "206.0 MB of 128 MB physical memory used; 212.4 MB of 268.8 MB", 206),
    ];
    for (excess, figures, used) in reports {
        let sentence = format!(
            "Container [pid=31987,containerID=container_1794778261818_0005_01_000004] is running {excess}B beyond \
             the 'PHYSICAL' memory limit. Current usage: {figures} virtual memory used. Killing container."
        );
        assert_eq!(killed(-104, &sentence, 128), limit(used, 128), "{sentence}");
    }
    // Rounding would make usage and limit equal.
    let close = "Container [pid=1,containerID=container_1_0001_01_000002] is running 4096B beyond the 'PHYSICAL' \
                 memory limit. Current usage: 2.0 GB of 2 GB physical memory used; 3.1 GB of 4.2 GB virtual memory \
                 used. Killing container.";
    assert_eq!(killed(-104, close, 2048), limit(2049, 2048));
    // Unknown diagnostics still give a memory limit exit.
    assert_eq!(killed(-104, "Container was too hungry.", 512), limit(512, 512));
    let malformed = "Current usage: lots of 128 MB physical memory used";
    assert_eq!(killed(-104, malformed, 64), limit(64, 64));
    let huge = "Current usage: 99999999999999999 PB of 9 PB physical memory used";
    assert_eq!(killed(-104, huge, 64), limit(64, 64));
}

#[test]
fn every_exit_status_is_mapped() {
    let completed = |status| ContainerExit::Completed { status };
    let node_fault = |why: &str| ContainerExit::NodeFault { reason: why.to_owned() };
    let launch = "[2026-11-15 21:24:47.111]Exception from container-launch.\nContainer id: \
                  container_1794777875415_0003_01_000002\nExit code: 7\n\n[2026-11-15 21:24:47.276]Container exited \
                  with a non-zero exit code 7. Error file: prelaunch.err.\nLast 4096 bytes of prelaunch.err :\n\n";
    let signal = "[2026-11-15 21:24:46.994]Container killed on request. Exit code is 137\n[2026-11-15 21:24:47.002]\
                  Container exited with a non-zero exit code 137. \n[2026-11-15 21:24:47.003]Killed by external \
                  signal\n";
    let table = [
        (0, "", completed(0)),
        (7, launch, completed(7)),
        (137, signal, completed(137)),
        (143, "", completed(143)),
        (
            126,
            launch,
            node_fault(
                "it cannot execute `ydl`: code 126: it is made for another kind of processor, or its \
                 directory is mounted `noexec`",
            ),
        ),
        (
            126,
            "Last 4096 bytes of agent.stderr :\n/bin/bash: line 1: /nm/c/ydl: cannot execute binary file: Exec format error\n\
             /bin/bash: line 1: /nm/c/ydl: Success",
            node_fault("it cannot execute `ydl`: it is made for another kind of processor"),
        ),
        (
            126,
            "/bin/bash: line 1: /nm/c/ydl: Permission denied\n/bin/bash: line 1: exec: /nm/c/ydl: cannot execute: \
             Permission denied",
            node_fault(
                "it cannot execute `ydl`: the node's directory is mounted `noexec`, or closed to this user",
            ),
        ),
        (
            127,
            "bash: ./ydl: No such file or directory",
            node_fault(
                "it cannot execute `ydl`: the node lacks something that it needs: bash: ./ydl: No such \
                 file or directory",
            ),
        ),
        (
            1,
            "Last 4096 bytes of agent.stderr :\n./ydl: /lib64/libc.so.6: version `GLIBC_2.34' not found \
             (required by ./ydl)",
            node_fault(
                "it cannot execute `ydl`: the node lacks something that it needs: ./ydl: \
                 /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./ydl)",
            ),
        ),
        // The newest file with `stderr` in its name may be one of a program.
        (
            1,
            "Error files: agent.stderr, worker-0.attempt-1.stderr.\nLast 4096 bytes of \
             worker-0.attempt-1.stderr :\n./train: /lib64/libc.so.6: version `GLIBC_2.34' not found",
            completed(1),
        ),
        (
            1,
            "[2026-01-31 12:00:00.123]Last 4096 bytes of worker-0.attempt-1.stderr :\nfind: command not found\n\
             ./ydl: version `GLIBC_2.34' not found\n",
            completed(1),
        ),
        (154, "", ContainerExit::NodeLost),
        (-100, "Container released by application", ContainerExit::Released),
        (-100, "Container released on a *lost* node", ContainerExit::NodeLost),
        (-100, "Container of a completed application", ContainerExit::Released),
        (-100, "Container expired since it was unused", ContainerExit::Released),
        (-101, "", node_fault("its disks have failed")),
        (
            -101,
            "1/1 local-dirs have errors: [ /data : Directory is not writable ]",
            node_fault("1/1 local-dirs have errors: [ /data : Directory is not writable ]"),
        ),
        (-102, "Container preempted by scheduler", ContainerExit::Preempted),
        (-105, "", ContainerExit::Released),
        (-106, "", ContainerExit::Released),
        (-107, "", ContainerExit::Released),
        (-108, "", ContainerExit::Preempted),
        (-109, "", completed(-109)),
        (-1000, "", node_fault("its node could not prepare it")),
        (-77, "", node_fault("its node ended it with status -77")),
    ];
    for (status, diagnostics, expected) in table {
        let end = container_exit(ExitStatus::from(status), diagnostics, 64);
        assert_eq!(end, expected, "{status} {diagnostics}");
    }
}

#[test]
fn localization_failures_name_the_file_in_one_line() {
    let diagnostics = "[2026-11-15 21:24:44.371]Resource hdfs://nn:8020/user/ada/.ydl/content/12.txt changed on src \
                 filesystem - expected: \"2026-11-15T21:24:41.689+0000\", was: \"2026-11-15T21:24:41.688+0000\"\n\
                 java.io.IOException: Resource hdfs://nn:8020/user/ada/.ydl/content/12.txt changed on src \
                 filesystem\n\tat org.apache.hadoop.yarn.util.FSDownload.verifyAndCopy(FSDownload.java:290)\n\n";
    let line = summary_line(diagnostics).expect("a line");
    let expected = "Resource hdfs://nn:8020/user/ada/.ydl/content/12.txt changed on src filesystem";
    assert!(line.starts_with(expected), "{line}");
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(summary_line("\n\tat org.apache.Hadoop\n"), None);
    assert!(summary_line(&"x".repeat(100_000)).is_some_and(|line| line.len() < 1000));
}
