//! 500 MB into HDFS: by Hadoop's own shell, by the call below everything, and by a submit that has to send them.

use crate::{
    figures::{line, now_ns, ratio, seconds},
    scene::Scene,
};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;
use yarn_native::security::Identity;
use ydl_storage::hdfs::Hdfs;

const BYTES: usize = 500_000_000;

/// A file that is in nobody's store yet; read once, so that no disk is measured.
fn fresh(scene: &Scene, name: &str) -> PathBuf {
    let path = scene.path(name);
    let mut random = File::open("/dev/urandom").expect("random bytes");
    let mut piece = vec![0; 1 << 20];
    random.read_exact(&mut piece).expect("random bytes");
    let mut file = File::create(&path).expect("a file");
    let mut left = BYTES;
    while left > 0 {
        let most = left.min(piece.len());
        file.write_all(&piece[..most]).expect("room on the disk");
        left -= most;
    }
    // What is still on its way to the disk would be measured, too.
    file.sync_all().expect("a disk");
    path
}

fn timed(scene: &Scene, what: impl FnOnce(&Path)) -> f64 {
    let path = fresh(scene, "large");
    let began = now_ns();
    what(&path);
    let took = seconds(began, now_ns());
    rustix::fs::sync();
    took
}

pub fn measure(scene: &Scene, binary: &Path, runs: usize) {
    let (mut shell, mut call, mut submit) = (Vec::new(), Vec::new(), Vec::new());
    let identity = Identity::simple(scene.cluster.own_user());
    let soon = || Instant::now() + Duration::from_secs(300);
    let yaml = "files: [large]\nroles: {worker: {memory: 128 MiB, run: \"true\"}}\n";
    std::fs::write(scene.path("large.yaml"), yaml).expect("a job file");
    for run in 0..runs {
        shell.push(timed(scene, |path| {
            let mut put = scene.cluster.hadoop("org.apache.hadoop.fs.FsShell").expect("a command");
            put.arg("-put").arg(path).arg(format!("/put-{run}"));
            assert!(put.status().expect("it runs").success());
        }));
        call.push(timed(scene, |path| {
            scene.block_on(async {
                let hdfs = Hdfs::connect(&scene.config, None, &identity, soon()).await;
                let hdfs = hdfs.expect("a file system");
                let place = format!("/call-{run}");
                let sent = hdfs.upload_file(path, &place, 0o600, &|_| {}, soon()).await;
                sent.expect("sent");
            });
        }));
        let mut id = String::new();
        submit.push(timed(scene, |_| {
            let mut command = scene.ydl(binary);
            let command = command.args(["submit", "--detach", "large.yaml"]);
            let output = command.output().expect("ydl");
            assert!(output.status.success(), "{output:?}");
            id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        }));
        scene.end(&id);
        scene
            .cluster
            .fs(&["-rm", "-r", "-skipTrash", "/put-*", "/call-*", "/user/*/.ydl/content/*"])
            .expect("room in HDFS");
    }
    let shell = line("500 MB by `FsShell -put`", "s", &shell);
    let call = line("500 MB by our call, `upload_file`", "s", &call);
    let submit = line("500 MB by `ydl submit --detach`, all of it", "s", &submit);
    ratio("as soon by `upload_file`", shell, call);
    ratio("as soon by `ydl submit`", shell, submit);
}
