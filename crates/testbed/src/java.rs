//! The Java that runs the daemons.

use crate::{
    cache,
    failure::{Failure, Kind},
    tool,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

/// From 24 on there is no security manager, without which Hadoop up to 3.4 cannot name its user.
const FIRST: u32 = 17;
const LAST: u32 = 23;

/// Packages Hadoop reaches into by reflection, which Java has closed since 16.
const OPENED: [&str; 12] = [
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

/// A Java that fits.
#[derive(Clone, Debug)]
pub(crate) struct Java {
    pub program: PathBuf,
    pub home: PathBuf,
    /// What tells one build of Java from another.
    pub build: String,
}

impl Java {
    /// The one of `JAVA_HOME` or of `PATH`, or the newest that fits in Debian's place. Looked for
    /// once per process.
    pub(crate) fn find() -> Result<Java, Failure> {
        static FOUND: OnceLock<Result<Java, Failure>> = OnceLock::new();
        FOUND.get_or_init(look).clone()
    }

    /// Starts small and soon: these daemons live for seconds and serve a handful of calls.
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
            // Java would begin with a sixty-fourth of the machine's memory for each of them.
            .args([format!("-Xmx{heap_mib}m"), "-Xms64m".into(), "-Xmn32m".into()])
            .arg("-XX:MetaspaceSize=96m")
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k"])
            .args(["-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"])
            .args(OPENED.map(|name| format!("--add-opens=java.base/{name}=ALL-UNNAMED")))
            // Hadoop 2.10 asks Java's own Kerberos classes for the default realm, always.
            .arg("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED");
        command
    }
}

fn look() -> Result<Java, Failure> {
    let mut candidates = Vec::new();
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    candidates.extend(home.filter(|program| program.is_file()));
    candidates.extend(tool::find("java"));
    let mut installed: Vec<_> = fs::read_dir("/usr/lib/jvm")
        .map(|entries| entries.flatten().map(|e| e.path().join("bin/java")).collect())
        .unwrap_or_default();
    installed.sort();
    candidates.extend(installed.into_iter().filter(|program| program.is_file()));

    let mut unfit = String::new();
    for program in candidates {
        match probe(&program) {
            Ok((major, java)) if (FIRST..=LAST).contains(&major) => return Ok(java),
            Ok((major, _)) if unfit.is_empty() => {
                unfit = format!("; `{}` is version {major}", program.display());
            }
            Err(error) if unfit.is_empty() => unfit = format!("; {}", error.what),
            Ok(_) | Err(_) => {}
        }
    }
    let what = format!("Java {FIRST} was not found{unfit}");
    let hint = format!(
        "install it (apt-get install openjdk-{FIRST}-jre-headless) or name its place in JAVA_HOME"
    );
    Err(Failure::new(Kind::Missing, what).hint(hint))
}

fn probe(program: &Path) -> Result<(u32, Java), Failure> {
    let mut command = Command::new(program);
    command.args(["-XshowSettings:properties", "-version"]).env_remove("JAVA_TOOL_OPTIONS");
    let text = tool::must(&mut command, "", Duration::from_secs(30))?;
    let property = |name: &str| {
        let value =
            text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
        value.map(str::trim).ok_or_else(|| {
            let what = format!("`{}` does not tell its `{name}`", program.display());
            Failure::new(Kind::Missing, what)
        })
    };
    let major = property("java.specification.version")?;
    let java = Java {
        program: program.to_path_buf(),
        home: property("java.home")?.into(),
        build: cache::hash(&format!("{} {}", property("java.vm.version")?, property("java.home")?)),
    };
    // Java 8 calls itself 1.8.
    let major = major.strip_prefix("1.").unwrap_or(major).parse().unwrap_or(0);
    Ok((major, java))
}
