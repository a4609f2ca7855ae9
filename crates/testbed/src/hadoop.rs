//! Hadoop's programs: one class each, of the same jars.

use crate::{failure::Failure, headstart::Headstart, jars::Jars, java::Java, watcher::MARK};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// What every program of one cluster is started with.
#[derive(Debug)]
pub(crate) struct Hadoop {
    pub java: Java,
    pub jars: Jars,
    pub headstart: Headstart,
    pub directory: PathBuf,
    pub mark: String,
    /// `krb5.conf`, with Kerberos.
    pub krb5_conf: Option<PathBuf>,
}

impl Hadoop {
    /// A program that logs warnings to its standard error.
    pub(crate) fn tool(&self, configuration: &Path, class: &str) -> Result<Command, Failure> {
        self.command("tool", 256, configuration, class, &[])
    }

    /// A program that logs everything into `logs/NAME.log`.
    pub(crate) fn daemon(
        &self,
        name: &str,
        heap_mib: u32,
        configuration: &Path,
        class: &str,
    ) -> Result<Command, Failure> {
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
    ) -> Result<Command, Failure> {
        let mut command = self.java.command(heap_mib);
        let place = self.directory.display();
        command
            .env(MARK, &self.mark)
            .current_dir(&self.directory)
            .args(self.headstart.flags(name))
            .args(properties);
        for property in ["hadoop.home.dir", "hadoop.log.dir", "yarn.log.dir"] {
            command.arg(format!("-D{property}={place}/logs"));
        }
        // Web servers unpack themselves here, and what a killed one leaves goes with the cluster.
        command.arg(format!("-Djava.io.tmpdir={place}/tmp"));
        if let Some(file) = &self.krb5_conf {
            command.arg(format!("-Djava.security.krb5.conf={}", file.display()));
        }
        command.arg("-cp").arg(self.jars.class_path(configuration)?).arg(class);
        Ok(command)
    }
}
