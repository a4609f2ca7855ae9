//! Hadoop's jars, downloaded once from Maven Central.

use crate::{
    cache,
    error::{Error, ErrorKind},
    java::Java,
    tool,
    version::Version,
    watcher::Watcher,
};
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Timeout of a download. The first one takes one or two minutes.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Artifacts of the group `org.apache.hadoop`. Clients of other launchers need the last one.
const ARTIFACTS: [&str; 14] = [
    "hadoop-common",
    "hadoop-auth",
    "hadoop-hdfs",
    "hadoop-hdfs-client",
    "hadoop-yarn-api",
    "hadoop-yarn-common",
    "hadoop-yarn-client",
    "hadoop-yarn-server-common",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-web-proxy",
    "hadoop-yarn-server-applicationhistoryservice",
    "hadoop-yarn-server-timelineservice",
    "hadoop-mapreduce-client-core",
];

/// The jars of one version.
#[derive(Clone, Debug)]
pub(crate) struct Jars {
    /// The cache entry: `lib` and `pom.xml`.
    pub home: PathBuf,
}

impl Jars {
    /// Downloads missing jars and reports progress.
    pub(crate) fn fetch(version: Version, progress: &mut dyn FnMut(&str)) -> Result<Jars, Error> {
        let pom = pom(version);
        let name = format!("{version}-{}", cache::hash(&format!("{PLUGIN}\n{pom}")));
        let folder = cache::root()?.join("hadoop");
        let create =
            |directory: &Path, progress: &mut dyn FnMut(&str)| maven(directory, &pom, progress);
        let home = cache::entry(&folder, &name, progress, create)?;
        Ok(Jars { home })
    }

    /// Returns the class path: the jars, then the configuration. A class data archive is valid only for
    /// class paths with the prefix it was created with. (No jar contains a `*-site.xml`.)
    pub(crate) fn class_path(&self, configuration: &Path) -> Result<String, Error> {
        let mut path = self.paths()?;
        path.push(configuration.display().to_string());
        Ok(path.join(":"))
    }

    /// Returns the paths of all jars, sorted.
    pub(crate) fn paths(&self) -> Result<Vec<String>, Error> {
        let lib = self.home.join("lib");
        let mut jars = Vec::new();
        for jar in fs::read_dir(&lib).map_err(Error::at("read", &lib))? {
            let jar = jar.map_err(Error::at("read", &lib))?.path();
            jars.push(jar.display().to_string());
        }
        jars.sort();
        Ok(jars)
    }
}

fn pom(version: Version) -> String {
    let mut pom = String::from(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n<modelVersion>4.0.0</modelVersion>\n\
         <groupId>testbed</groupId><artifactId>hadoop</artifactId><version>1</version>\n\
         <packaging>pom</packaging>\n<dependencies>\n",
    );
    let mut dependency = |group: &str, artifact: &str, version: &str, rest: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(
            pom,
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version>{rest}</dependency>"
        );
    };
    let without = |names: &[(&str, &str)]| {
        let each = names.iter().map(|(group, artifact)| {
            format!(
                "<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 </exclusion>"
            )
        });
        format!("<exclusions>{}</exclusions>", each.collect::<String>())
    };
    // One logging backend, Hadoop's own: a second one would capture the daemons' logs.
    let without_loggers =
        without(&[("ch.qos.logback", "*"), ("org.slf4j", "slf4j-log4j12"), ("log4j", "log4j")]);
    for artifact in ARTIFACTS {
        dependency("org.apache.hadoop", artifact, version.name(), &without_loggers);
    }
    if version == Version::V2_10_2 {
        // Its own ZooKeeper client, 3.4, cannot connect with Java 14 or later (ZOOKEEPER-3779).
        dependency("org.apache.zookeeper", "zookeeper", "3.5.10", &without_loggers);
    }
    // The tests jar contains the web pages that NameNode and DataNode require.
    let rest = format!("<classifier>tests</classifier>{}", without(&[("*", "*")]));
    dependency("org.apache.hadoop", "hadoop-hdfs", version.name(), &rest);
    dependency("io.dropwizard.metrics", "metrics-core", "3.2.4", "");
    dependency("org.xerial.snappy", "snappy-java", "1.1.10.4", "");
    pom.push_str("</dependencies>\n</project>\n");
    pom
}

fn maven(directory: &Path, pom: &str, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let mvn = tool::find("mvn").ok_or_else(|| {
        Error::new(ErrorKind::Missing, "`mvn` not found; Maven downloads Hadoop's jars")
            .hint("apt-get install maven")
    })?;
    let java = Java::find()?;
    let file = directory.join("pom.xml");
    fs::write(&file, pom).map_err(Error::at("write", &file))?;
    let mut command = Command::new(mvn);
    // -C: strict checksums.
    command
        .env("JAVA_HOME", &java.home)
        .args(["-B", "-C", "-f"])
        .arg(&file)
        .args([PLUGIN, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", directory.join("lib").display()));
    let _watcher = Watcher::guard(&mut command)?;
    let mut count = 0;
    let output = tool::run_streaming(&mut command, "", TIMEOUT, |line| {
        if line.contains("Downloaded from") {
            count += 1;
            let url = line.split(' ').find(|word| word.contains("://")).unwrap_or_default();
            let name = url.rsplit('/').next().unwrap_or_default();
            if name.ends_with(".jar") {
                progress(&format!("downloaded {count} files, last `{name}`"));
            }
        }
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(diagnose(&output.text))
}

/// Maps Maven's output to an error with a hint.
fn diagnose(output: &str) -> Error {
    let has = |words: &[&str]| words.iter().any(|word| output.contains(word));
    let errors: Vec<_> = output.lines().filter(|line| line.starts_with("[ERROR]")).collect();
    let log = errors.join("\n");
    let log = if log.is_empty() { tool::tail(output, 20) } else { log };
    if has(&["No space left on device"]) {
        return Error::new(ErrorKind::System, "no space left on device for Hadoop's jars")
            .hint("set XDG_CACHE_HOME to a directory on a larger disk");
    }
    let unreachable = [
        "Unknown host",
        "UnknownHostException",
        "Temporary error in name resolution",
        "Network is unreachable",
        "Connection refused",
        "onnect timed out",
        "No route to host",
    ];
    if has(&unreachable) {
        return Error::new(ErrorKind::Unreachable, "Maven Central is unreachable")
            .hint("check the network, or set a proxy or mirror in ~/.m2/settings.xml")
            .log(log.lines().next().unwrap_or_default());
    }
    Error::new(ErrorKind::Unreachable, "Maven failed to download Hadoop's jars")
        .log(tool::tail(&log, 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_only_in_the_version_number() {
        let (old, new) = (pom(Version::V3_3_6), pom(Version::V3_5_0));
        assert_eq!(old.replace("3.3.6", "3.5.0"), new);
    }

    #[test]
    fn network_errors_are_distinguished_from_other_errors() {
        let offline =
            "[ERROR] Failed: Could not transfer artifact x: Unknown host central\n[ERROR]";
        let error = diagnose(offline);
        assert_eq!(error.message, "Maven Central is unreachable");
        assert!(error.hint.is_some() && error.log.unwrap().contains("Unknown host"));
        assert!(diagnose("[ERROR] odd").to_string().ends_with("[ERROR] odd"));
    }
}
