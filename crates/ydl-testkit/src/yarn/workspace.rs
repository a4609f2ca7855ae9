//! A user's directory on the machine from which jobs are submitted.

use crate::CommandOutput;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use testbed::Cluster;

/// A temporary directory of a user of a cluster, with a state directory of its own.
#[derive(Debug)]
pub struct Workspace<'a> {
    dir: tempfile::TempDir,
    pub cluster: &'a Cluster,
    /// The variables that tell the binary the user.
    variables: Vec<(&'static str, OsString)>,
}

impl<'a> Workspace<'a> {
    /// Creates a workspace of the daemons' user.
    pub fn new(cluster: &'a Cluster) -> Workspace<'a> {
        Workspace::of(cluster, &cluster.own_user())
    }

    /// Creates a workspace of a user: by name, or with a new ticket on a cluster with Kerberos.
    pub fn of(cluster: &'a Cluster, user: &str) -> Workspace<'a> {
        let variables = match cluster.kerberos() {
            None => vec![("HADOOP_USER_NAME", user.into())],
            Some(kerberos) => {
                let ticket = kerberos.kinit(user, None).expect("a ticket");
                let libraries = kerberos.libraries().unwrap_or(Path::new("/usr/lib"));
                vec![
                    ("KRB5_CONFIG", kerberos.configuration().into()),
                    ("KRB5CCNAME", ticket.into()),
                    ("LD_LIBRARY_PATH", libraries.into()),
                ]
            }
        };
        Workspace { dir: tempfile::tempdir().expect("a temporary directory"), cluster, variables }
    }

    /// Removes the Kerberos ticket of this workspace.
    pub fn destroy_ticket(&self) {
        let ticket = self.variables.iter().find(|(name, _)| *name == "KRB5CCNAME");
        let (_, ticket) = ticket.expect("a ticket");
        fs::remove_file(ticket).expect("the ticket exists");
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Returns a command of the binary with the cluster's configuration, as the user of this workspace.
    pub fn ydl(&self) -> Command {
        let mut command = Command::new(crate::ydl());
        let others = ["YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER"];
        for name in others.into_iter().chain(["HADOOP_USER_NAME"]) {
            command.env_remove(name);
        }
        command
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("HADOOP_CONF_DIR", self.cluster.configuration())
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs `ydl` with these arguments to its end.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.ydl().args(arguments).output();
        CommandOutput::from(output.expect("ydl can be started"))
    }

    /// Submits a job file and waits for the end of the job.
    pub fn submit(&self, yaml: &str) -> CommandOutput {
        self.write("job.yaml", yaml);
        self.run(&["submit", "job.yaml"])
    }

    /// Submits a job file detached, and returns the id of the job.
    pub fn detach(&self, yaml: &str) -> String {
        self.write("job.yaml", yaml);
        let output = self.run(&["submit", "--detach", "job.yaml"]);
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout.trim().to_owned()
    }

    /// Starts `ydl` with these arguments without waiting for it.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.ydl();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ydl can be started")
    }
}
