//! Commands of Hadoop's programs: one class each, from the same jars.

use crate::{error::Error, jars::Jars, java::Java, warm_start::WarmStart, watcher::CLUSTER_ID_VAR};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Settings shared by all Hadoop programs of one cluster.
#[derive(Debug)]
pub(crate) struct Hadoop {
    pub java: Java,
    pub jars: Jars,
    pub warm_start: WarmStart,
    pub directory: PathBuf,
    pub cluster_id: String,
    /// `krb5.conf`, with Kerberos.
    pub krb5_conf: Option<PathBuf>,
}

impl Hadoop {
    /// Returns the command of a tool; it logs warnings to standard error.
    pub(crate) fn tool(&self, configuration: &Path, class: &str) -> Result<Command, Error> {
        self.command("tool", 256, configuration, class, &[])
    }

    /// Returns the command of a daemon; it logs to `logs/NAME.log`.
    pub(crate) fn daemon(
        &self,
        name: &str,
        heap_mib: u32,
        configuration: &Path,
        class: &str,
    ) -> Result<Command, Error> {
        let log = self.directory.join("logs").join(format!("{name}.log"));
        let properties =
            ["-Dtestbed.logger=INFO,file".to_owned(), format!("-Dtestbed.log={}", log.display())];
        self.command(name, heap_mib, configuration, class, &properties)
    }

    fn command(
        &self,
        name: &str,
        heap_mib: u32,
        configuration: &Path,
        class: &str,
        properties: &[String],
    ) -> Result<Command, Error> {
        let mut command = self.java.command(heap_mib);
        let directory = self.directory.display();
        command
            .env(CLUSTER_ID_VAR, &self.cluster_id)
            .current_dir(&self.directory)
            .args(self.warm_start.flags(name))
            .args(properties);
        for property in ["hadoop.home.dir", "hadoop.log.dir", "yarn.log.dir"] {
            command.arg(format!("-D{property}={directory}/logs"));
        }
        // Web servers unpack here; leftovers of a killed server are removed with the cluster.
        command.arg(format!("-Djava.io.tmpdir={directory}/tmp"));
        if let Some(file) = &self.krb5_conf {
            command.arg(format!("-Djava.security.krb5.conf={}", file.display()));
        }
        command.arg("-cp").arg(self.jars.class_path(configuration)?).arg(class);
        Ok(command)
    }
}
