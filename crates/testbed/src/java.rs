//! Finds a Java runtime for the daemons.

use crate::{
    cache,
    error::{Error, ErrorKind},
    tool,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

/// Supported versions. Java 24 removed the security manager, which Hadoop up to 3.4 needs to get the
/// current user.
const MIN_VERSION: u32 = 17;
const MAX_VERSION: u32 = 23;

/// Packages that Hadoop accesses by reflection; closed by default since Java 16.
const OPEN_PACKAGES: [&str; 12] = [
    "java.io",
    "java.lang",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.text",
    "java.util",
    "java.util.concurrent",
    "java.util.zip",
    "sun.nio.ch",
    "sun.security.util",
    "sun.security.x509",
];

/// A Java installation of a supported version.
#[derive(Clone, Debug)]
pub(crate) struct Java {
    pub program: PathBuf,
    pub home: PathBuf,
    /// Hash of the build and its directory.
    pub build: String,
}

impl Java {
    /// Returns the Java of `JAVA_HOME`, of `PATH`, or the newest supported one in `/usr/lib/jvm`.
    /// Searches once per process.
    pub(crate) fn find() -> Result<Java, Error> {
        static FOUND: OnceLock<Result<Java, Error>> = OnceLock::new();
        FOUND.get_or_init(search).clone()
    }

    /// Returns a command with settings for fast start and little memory: the daemons live for seconds.
    pub(crate) fn command(&self, heap_mib: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear();
        for name in ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"] {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("JAVA_HOME", &self.home)
            // By default each JVM would start with 1/64 of the machine's memory.
            .args([format!("-Xmx{heap_mib}m"), "-Xms64m".into(), "-Xmn32m".into()])
            .arg("-XX:MetaspaceSize=96m")
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k"])
            .args(["-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"])
            .args(OPEN_PACKAGES.map(|name| format!("--add-opens=java.base/{name}=ALL-UNNAMED")))
            // Hadoop 2.10 always reads the default realm from Java's internal Kerberos classes.
            .arg("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED");
        command
    }
}

fn search() -> Result<Java, Error> {
    let mut candidates = Vec::new();
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    candidates.extend(home.filter(|program| program.is_file()));
    candidates.extend(tool::find("java"));
    let mut installed: Vec<_> = fs::read_dir("/usr/lib/jvm")
        .map(|entries| entries.flatten().map(|e| e.path().join("bin/java")).collect())
        .unwrap_or_default();
    installed.sort();
    candidates.extend(installed.into_iter().filter(|program| program.is_file()));

    let mut rejected = String::new();
    for program in candidates {
        match probe(&program) {
            Ok((major, java)) if (MIN_VERSION..=MAX_VERSION).contains(&major) => return Ok(java),
            Ok((major, _)) if rejected.is_empty() => {
                rejected = format!("; `{}` is version {major}", program.display());
            }
            Err(error) if rejected.is_empty() => rejected = format!("; {}", error.message),
            Ok(_) | Err(_) => {}
        }
    }
    let message = format!("Java {MIN_VERSION} not found{rejected}");
    let hint =
        format!("install it (apt-get install openjdk-{MIN_VERSION}-jre-headless) or set JAVA_HOME");
    Err(Error::new(ErrorKind::Missing, message).hint(hint))
}

fn probe(program: &Path) -> Result<(u32, Java), Error> {
    let mut command = Command::new(program);
    command.args(["-XshowSettings:properties", "-version"]).env_remove("JAVA_TOOL_OPTIONS");
    let text = tool::run_checked(&mut command, "", Duration::from_secs(30))?;
    let property = |name: &str| {
        let value =
            text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
        value.map(str::trim).ok_or_else(|| {
            let message = format!("`{}` does not report `{name}`", program.display());
            Error::new(ErrorKind::Missing, message)
        })
    };
    let major = property("java.specification.version")?;
    let java = Java {
        program: program.to_path_buf(),
        home: property("java.home")?.into(),
        build: cache::hash(&format!("{} {}", property("java.vm.version")?, property("java.home")?)),
    };
    // Java 8 reports 1.8.
    let major = major.strip_prefix("1.").unwrap_or(major).parse().unwrap_or(0);
    Ok((major, java))
}
