//! A job's files in a real HDFS: sent once, never half, cleaned when nobody needs them, and bad days have sentences.

mod cleanup;
mod content;
mod faults;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use testbed::{Cluster, File, Options, Version};
use tokio::{
    sync::{RwLock, RwLockReadGuard},
    time::Instant,
};
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl::client::stage::{self, Place, StageRequest, Upload};
use ydl_core::JobSpec;
use ydl_jobfile as jobfile;
use ydl_os::report::Report;
use ydl_storage::hdfs::{Entry, Hdfs};

/// Most tests disturb nobody; some change the mood of the NameNode.
static QUIET: RwLock<()> = RwLock::const_new(());

const DFS_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSAdmin";

/// The Hadoop to test with: all tests pass on every one the test bed has.
fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().expect("a version of Hadoop"),
        Err(_) => Version::NEWEST,
    }
}

fn cluster() -> &'static Cluster {
    // Small blocks, so that small files have several.
    let options = Options::new(version()).set(File::Hdfs, "dfs.blocksize", "1048576").set(
        File::Hdfs,
        "dfs.namenode.acls.enabled",
        "true",
    );
    Cluster::shared(options).expect("a cluster")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(90)
}

fn config() -> Config {
    let environment = Environment::default().with_variable("USER", "alice");
    Config::from_directories(&[cluster().configuration()], environment).expect("its configuration")
}

async fn hdfs(user: &str) -> Hdfs {
    let identity = Identity::simple(user);
    let hdfs = Hdfs::connect(&config(), None, &identity, soon()).await;
    hdfs.expect("a file system")
}

fn admin(words: &[&str]) {
    let mut command = cluster().hadoop(DFS_ADMIN).expect("a program");
    let said = testbed::run(command.args(words), Duration::from_secs(60)).expect("it runs");
    println!("{words:?}: {said:?}");
}

/// Makes files look as if they had not been touched for years.
async fn make_old(urls: &[String]) {
    let year_2020 = 1_577_836_800_000;
    touch(urls, year_2020).await;
}

/// Makes files look as if they had last been touched then.
async fn touch(urls: &[String], when_ms: u64) {
    let builder = hdfs_native::ClientBuilder::new().with_url(cluster().default_fs());
    let client = builder.with_user(cluster().own_user()).build();
    let client = client.expect("a client");
    for url in urls {
        let path = url.trim_start_matches(&cluster().default_fs());
        let touched = client.set_times(path, when_ms, when_ms).await;
        touched.expect("touched");
    }
}

/// A directory that everybody may write to.
async fn playground(name: &str) -> (String, RwLockReadGuard<'static, ()>) {
    let quiet = QUIET.read().await;
    let path = format!("/test/{name}");
    let root = hdfs(&cluster().own_user()).await;
    root.mkdirs(&path, 0o777, soon()).await.expect("a directory");
    root.set_permission(&path, 0o777, soon()).await.expect("its permission");
    (path, quiet)
}

/// A submitter with a folder of files and a directory in HDFS.
struct Submitter {
    folder: TempDir,
    place: Place,
    identity: Identity,
}

impl Submitter {
    async fn new(user: &str, staging: &str) -> Submitter {
        let identity = Identity::simple(user);
        let place = Place::find(&config(), &identity, Some(staging), soon()).await;
        let folder = tempfile::tempdir().expect("a folder");
        let submitter = Submitter { folder, place: place.expect("a place"), identity };
        submitter.write("ydl", &[7; 3 << 20]);
        submitter.write("train.py", b"print(1)");
        submitter.write("code/model.py", b"layers = 3");
        submitter.write("code/deep/data.bin", &[1; 100_000]);
        submitter.write("env.tar.gz", b"packed by somebody else");
        submitter
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }

    fn spec(&self, more: &str) -> JobSpec {
        let text = format!(
            "name: digits\nframework: none\nfiles: [train.py, code]\nroles:\n  worker:\n    instances: 1\n    run: python3 train.py\n{more}"
        );
        self.write("job.yaml", text.as_bytes());
        let mut source = jobfile::load(&self.path("job.yaml")).expect("a job file");
        source.for_cluster();
        source.job().map_err(|diagnostics| diagnostics.to_string()).expect("a job")
    }

    async fn submit(&self, id: &str, spec: &JobSpec) -> Result<Upload, Report> {
        self.submit_telling(id, spec, |_| {}).await
    }

    async fn submit_telling(
        &self,
        id: &str,
        spec: &JobSpec,
        tell: impl Fn(stage::Progress) + Send + Sync + 'static,
    ) -> Result<Upload, Report> {
        let request = StageRequest {
            place: &self.place,
            config: &config(),
            identity: &self.identity,
            spec,
            binary: &self.path("ydl"),
            inputs: &[],
            tell: drop,
        };
        let looked = stage::look(request, soon()).await?;
        stage::stage(looked, id, tell, soon()).await
    }

    async fn contents(&self) -> Vec<Entry> {
        let contents = self.place.layout.contents();
        let list = self.place.hdfs.list(&contents, soon()).await;
        list.expect("a listing")
    }
}
