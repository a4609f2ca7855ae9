//! Hadoop's configuration files.

use crate::failure::Failure;
use std::{collections::BTreeMap, fmt::Display, fs, path::Path};

/// One of the files a cluster's configuration is made of.
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

    /// Its name in the configuration directory.
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

/// All files of one configuration directory.
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

    /// Writes every file, also the empty ones: some of them must be there.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Failure> {
        fs::create_dir_all(directory).map_err(Failure::at("make the directory", directory))?;
        for file in File::ALL {
            let path = directory.join(file.name());
            fs::write(&path, self.text(file)).map_err(Failure::at("write", &path))?;
        }
        let path = directory.join("log4j.properties");
        fs::write(&path, LOG4J).map_err(Failure::at("write", &path))
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

/// Daemons log into a file that cannot grow for ever; a tool, which names none, logs warnings to its
/// standard error.
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
# Without Hadoop's native library there is one such line per JVM, and nothing to be done about it.
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_break_out_of_its_file() {
        let mut site = Site::default();
        site.core("a", "x</value><&\"");
        site.yarn("b", 1);
        let core = site.text(File::Core);
        assert!(core.contains("<name>a</name><value>x&lt;/value&gt;&lt;&amp;\"</value>"), "{core}");
        assert!(!core.contains("<name>b</name>"));
    }
}
