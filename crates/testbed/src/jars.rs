//! Hadoop as Maven Central carries it: the jars of the daemons, fetched once.

use crate::{
    cache,
    failure::{Failure, Kind},
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

/// A first fetch takes one or two minutes.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Of the group `org.apache.hadoop`. The clients of other launchers need the last one.
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
    /// The cache's entry: `lib` and the recipe.
    pub home: PathBuf,
}

impl Jars {
    /// Fetches what is not there, and says how far it is.
    pub(crate) fn fetch(version: Version, progress: &mut dyn FnMut(&str)) -> Result<Jars, Failure> {
        let pom = pom(version);
        let name = format!("{version}-{}", cache::hash(&format!("{PLUGIN}\n{pom}")));
        let shelf = cache::root()?.join("hadoop");
        let make = |place: &Path, progress: &mut dyn FnMut(&str)| maven(place, &pom, progress);
        let home = cache::entry(&shelf, &name, progress, make)?;
        Ok(Jars { home })
    }

    /// The jars, then the configuration: an archive of classes is good for what begins with the path
    /// it was made with. (No jar carries a `*-site.xml`.)
    pub(crate) fn class_path(&self, configuration: &Path) -> Result<String, Failure> {
        let mut path = self.paths()?;
        path.push(configuration.display().to_string());
        Ok(path.join(":"))
    }

    /// One by one, and always in the same order.
    pub(crate) fn paths(&self) -> Result<Vec<String>, Failure> {
        let lib = self.home.join("lib");
        let mut jars = Vec::new();
        for jar in fs::read_dir(&lib).map_err(Failure::at("read", &lib))? {
            let jar = jar.map_err(Failure::at("read", &lib))?.path();
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
    // One logger, the one Hadoop itself brings: a second would take the daemons' logs from it.
    let quiet =
        without(&[("ch.qos.logback", "*"), ("org.slf4j", "slf4j-log4j12"), ("log4j", "log4j")]);
    for artifact in ARTIFACTS {
        dependency("org.apache.hadoop", artifact, version.name(), &quiet);
    }
    if version == Version::V2_10_2 {
        // Its own ZooKeeper client, 3.4, finds no server with a Java after 13 (ZOOKEEPER-3779).
        dependency("org.apache.zookeeper", "zookeeper", "3.5.10", &quiet);
    }
    // The tests' jar carries the web pages without which NameNode and DataNode do not start.
    let rest = format!("<classifier>tests</classifier>{}", without(&[("*", "*")]));
    dependency("org.apache.hadoop", "hadoop-hdfs", version.name(), &rest);
    dependency("io.dropwizard.metrics", "metrics-core", "3.2.4", "");
    dependency("org.xerial.snappy", "snappy-java", "1.1.10.4", "");
    pom.push_str("</dependencies>\n</project>\n");
    pom
}

fn maven(place: &Path, pom: &str, progress: &mut dyn FnMut(&str)) -> Result<(), Failure> {
    let mvn = tool::find("mvn").ok_or_else(|| {
        Failure::new(Kind::Missing, "Maven, `mvn`, was not found; it fetches Hadoop's jars")
            .hint("apt-get install maven")
    })?;
    let java = Java::find()?;
    let file = place.join("pom.xml");
    fs::write(&file, pom).map_err(Failure::at("write", &file))?;
    let mut command = Command::new(mvn);
    // Strict checksums: a damaged download fails here.
    command
        .env("JAVA_HOME", &java.home)
        .args(["-B", "-C", "-f"])
        .arg(&file)
        .args([PLUGIN, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", place.join("lib").display()));
    let _watcher = Watcher::over(&mut command)?;
    let mut fetched = 0;
    let said = tool::follow(&mut command, "", PATIENCE, |line| {
        if line.contains("Downloaded from") {
            fetched += 1;
            let url = line.split(' ').find(|word| word.contains("://")).unwrap_or_default();
            let name = url.rsplit('/').next().unwrap_or_default();
            if name.ends_with(".jar") {
                progress(&format!("fetched {fetched} files, the last `{name}`"));
            }
        }
    })?;
    if said.status.success() {
        return Ok(());
    }
    Err(explain(&said.text))
}

/// Turns Maven's many ways of saying a few things into those few things.
fn explain(output: &str) -> Failure {
    let has = |words: &[&str]| words.iter().any(|word| output.contains(word));
    let errors: Vec<_> = output.lines().filter(|line| line.starts_with("[ERROR]")).collect();
    let log = errors.join("\n");
    let log = if log.is_empty() { tool::tail(output, 20) } else { log };
    if has(&["No space left on device"]) {
        return Failure::new(Kind::Trouble, "no space is left for Hadoop's jars")
            .hint("set XDG_CACHE_HOME to a directory on a larger disk");
    }
    let unreachable = [
        "Unknown host",
        "UnknownHostException",
        "Temporary failure in name resolution",
        "Network is unreachable",
        "Connection refused",
        "onnect timed out",
        "No route to host",
    ];
    if has(&unreachable) {
        return Failure::new(Kind::Unreachable, "Maven Central cannot be reached")
            .hint("check the network, or name a proxy or mirror in ~/.m2/settings.xml")
            .log(log.lines().next().unwrap_or_default());
    }
    Failure::new(Kind::Unreachable, "Maven could not fetch Hadoop's jars").log(tool::tail(&log, 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_word_of_the_recipe() {
        let (old, new) = (pom(Version::V3_3_6), pom(Version::V3_5_0));
        assert_eq!(old.replace("3.3.6", "3.5.0"), new);
    }

    #[test]
    fn a_missing_network_is_told_from_other_failures() {
        let offline =
            "[ERROR] Failed: Could not transfer artifact x: Unknown host central\n[ERROR]";
        let failure = explain(offline);
        assert_eq!(failure.what, "Maven Central cannot be reached");
        assert!(failure.hint.is_some() && failure.log.unwrap().contains("Unknown host"));
        assert!(explain("[ERROR] odd").to_string().ends_with("[ERROR] odd"));
    }
}
