//! Files of a job in a real HDFS: uploaded once and completely, cleaned up when unused, and errors with clear messages.

mod cleanup;
mod content;
mod faults;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use testbed::{File, Lease, Options};
use tokio::time::Instant;
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl::client::stage::{self, StageRequest, StagingDir, Upload};
use ydl_core::JobSpec;
use ydl_jobfile as jobfile;
use ydl_os::report::Report;
use ydl_storage::hdfs::{Entry, Hdfs};
use ydl_testkit::yarn::version;
use ydl_testkit::yarn::{exclusive, shared};

const DFS_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSAdmin";

fn options() -> Options {
    // Small blocks, so that small files have several.
    Options::new(version()).set(File::Hdfs, "dfs.blocksize", "1048576").set(
        File::Hdfs,
        "dfs.namenode.acls.enabled",
        "true",
    )
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(90)
}

/// A cluster, and a directory in its HDFS that all users may write to.
struct StageFixture {
    cluster: Lease,
    path: String,
}

impl StageFixture {
    /// Creates a directory on the shared cluster.
    async fn new(name: &str) -> StageFixture {
        StageFixture::on(shared(options()), name).await
    }

    /// Creates a directory on an exclusively leased cluster. The test must repair what it breaks.
    async fn exclusive(name: &str) -> StageFixture {
        StageFixture::on(exclusive(options()), name).await
    }

    async fn on(cluster: Lease, name: &str) -> StageFixture {
        let fixture = StageFixture { path: format!("/test/{name}"), cluster };
        let root = fixture.hdfs(&fixture.cluster.own_user()).await;
        let path = &fixture.path;
        root.mkdirs(path, 0o777, soon()).await.expect("a directory");
        root.set_permission(path, 0o777, soon()).await.expect("its permission");
        fixture
    }

    fn config(&self) -> Config {
        let environment = Environment::default().with_variable("USER", "alice");
        let directories = [self.cluster.configuration()];
        Config::from_directories(&directories, environment).expect("its configuration")
    }

    async fn hdfs(&self, user: &str) -> Hdfs {
        let identity = Identity::simple(user);
        let hdfs = Hdfs::connect(&self.config(), None, &identity, soon()).await;
        hdfs.expect("a file system")
    }

    fn admin(&self, arguments: &[&str]) {
        let mut command = self.cluster.hadoop(DFS_ADMIN).expect("a program");
        let output = testbed::run(command.args(arguments), Duration::from_secs(60));
        println!("{arguments:?}: {:?}", output.expect("it runs"));
    }

    /// Sets the modification time of files to years ago.
    async fn make_old(&self, urls: &[String]) {
        let year_2020 = 1_577_836_800_000;
        self.touch(urls, year_2020).await;
    }

    /// Sets the modification time of files.
    async fn touch(&self, urls: &[String], time_ms: u64) {
        let builder = hdfs_native::ClientBuilder::new().with_url(self.cluster.default_fs());
        let client = builder.with_user(self.cluster.own_user()).build();
        let client = client.expect("a client");
        for url in urls {
            let path = url.trim_start_matches(&self.cluster.default_fs());
            let touched = client.set_times(path, time_ms, time_ms).await;
            touched.expect("touched");
        }
    }

    async fn submitter(&self, user: &str, staging: &str) -> Submitter {
        let config = self.config();
        let identity = Identity::simple(user);
        let staging_dir = StagingDir::find(&config, &identity, Some(staging), soon()).await;
        let folder = tempfile::tempdir().expect("a folder");
        let staging_dir = staging_dir.expect("a place");
        let submitter = Submitter { folder, staging_dir, identity, config };
        submitter.write("ydl", &[7; 3 << 20]);
        submitter.write("train.py", b"print(1)");
        submitter.write("code/model.py", b"layers = 3");
        submitter.write("code/deep/data.bin", &[1; 100_000]);
        submitter.write("env.tar.gz", b"packed elsewhere");
        submitter
    }
}

/// A submitter with a folder of files and a directory in HDFS.
struct Submitter {
    folder: TempDir,
    staging_dir: StagingDir,
    identity: Identity,
    config: Config,
}

impl Submitter {
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
        self.submit_with_progress(id, spec, |_| {}).await
    }

    async fn submit_with_progress(
        &self,
        id: &str,
        spec: &JobSpec,
        on_progress: impl Fn(stage::Progress) + Send + Sync + 'static,
    ) -> Result<Upload, Report> {
        let request = StageRequest {
            staging_dir: &self.staging_dir,
            config: &self.config,
            identity: &self.identity,
            spec,
            binary: &self.path("ydl"),
            inputs: &[],
            progress: drop,
        };
        let plan = stage::plan(request, soon()).await?;
        stage::stage(plan, id, on_progress, soon()).await
    }

    async fn contents(&self) -> Vec<Entry> {
        let contents = self.staging_dir.layout.contents();
        let list = self.staging_dir.hdfs.list(&contents, soon()).await;
        list.expect("a listing")
    }
}
