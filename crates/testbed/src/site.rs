//! Hadoop's configuration files.

use crate::error::Error;
use std::{collections::BTreeMap, fmt::Display, fs, path::Path};

/// A Hadoop configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// `core-site.xml`
    Core,
    /// `hdfs-site.xml`
    Hdfs,
    /// `yarn-site.xml`
    Yarn,
    /// `capacity-scheduler.xml`
    Queues,
    /// `resource-types.xml`
    ResourceTypes,
}

impl File {
    const ALL: [File; 5] = [File::Core, File::Hdfs, File::Yarn, File::Queues, File::ResourceTypes];

    /// Returns its name in the configuration directory.
    pub fn name(self) -> &'static str {
        match self {
            File::Core => "core-site.xml",
            File::Hdfs => "hdfs-site.xml",
            File::Yarn => "yarn-site.xml",
            File::Queues => "capacity-scheduler.xml",
            File::ResourceTypes => "resource-types.xml",
        }
    }
}

/// Contents of all files of a configuration directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site(BTreeMap<(File, String), String>);

impl Site {
    pub(crate) fn set(&mut self, file: File, key: impl Into<String>, value: impl Display) {
        self.0.insert((file, key.into()), value.to_string());
    }

    pub(crate) fn core(&mut self, key: impl Into<String>, value: impl Display) {
        self.set(File::Core, key, value);
    }

    pub(crate) fn hdfs(&mut self, key: impl Into<String>, value: impl Display) {
        self.set(File::Hdfs, key, value);
    }

    pub(crate) fn yarn(&mut self, key: impl Into<String>, value: impl Display) {
        self.set(File::Yarn, key, value);
    }

    pub(crate) fn queues(&mut self, key: &str, value: impl Display) {
        self.set(File::Queues, format!("yarn.scheduler.capacity.{key}"), value);
    }

    /// Writes all files, including empty ones: Hadoop requires some of them to exist.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        fs::create_dir_all(directory).map_err(Error::at("make the directory", directory))?;
        for file in File::ALL {
            let path = directory.join(file.name());
            fs::write(&path, self.text(file)).map_err(Error::at("write", &path))?;
        }
        let path = directory.join("log4j.properties");
        fs::write(&path, LOG4J).map_err(Error::at("write", &path))
    }

    fn text(&self, file: File) -> String {
        let mut text = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
        for ((_, key), value) in self.0.iter().filter(|((of, _), _)| *of == file) {
            let (key, value) = (escape(key), escape(value));
            text += &format!("  <property><name>{key}</name><value>{value}</value></property>\n");
        }
        text + "</configuration>\n"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Logging configuration: daemons log to a file of limited size, tools log warnings to standard error.
const LOG4J: &str = "\
testbed.logger=WARN,console
log4j.rootLogger=${testbed.logger}
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File=${testbed.log}
log4j.appender.file.MaxFileSize=32MB
log4j.appender.file.MaxBackupIndex=1
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
# Without Hadoop's native library every JVM logs one such line.
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_written_to_their_own_file() {
        let mut site = Site::default();
        site.core("a", "x</value><&\"");
        site.yarn("b", 1);
        let core = site.text(File::Core);
        assert!(core.contains("<name>a</name><value>x&lt;/value&gt;&lt;&amp;\"</value>"), "{core}");
        assert!(!core.contains("<name>b</name>"));
    }
}
