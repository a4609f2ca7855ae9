//! Class path and libraries for programs that read HDFS through libhdfs, whose JVM needs those of the node's Hadoop.
//!
//! dmlc-core looked them up on each node before every program. That takes a while, so it is done only if HDFS is mentioned: by
//! options of libhdfs, or by an HDFS path in the command or in a file that the command names.

use super::{
    JobFileBuilder,
    caller::CallerEnv,
    parser::{FlagValue, ParsedArgs},
};
use std::{
    fs::File,
    io::{self, Read},
};
use ydl_jobfile::Location;

/// Variables with the options of the JVM, of dmlc-core and of libhdfs.
const DMLC_OPTIONS: &str = "DMLC_HDFS_OPTS";
const LIBHDFS_OPTIONS: &str = "LIBHDFS_OPTS";
/// Default options of the JVM in dmlc-core.
const DEFAULT_OPTIONS: &str = "-Xmx128m";
/// Bytes of a file that are searched.
const SEARCHED_BYTES: u64 = 1 << 20;
/// Prefixes of HDFS paths.
const PREFIXES: [&str; 2] = ["hdfs://", "viewfs://"];

/// Sets the class path of the node's Hadoop, found by the administrator's variables or in `PATH`.
const CLASSES: &str = "{ for hadoop in \"$HADOOP_HOME\" \"$HADOOP_PREFIX\" \"$HADOOP_COMMON_HOME\" \"$HADOOP_HDFS_HOME\" /usr; do \
     hadoop=$hadoop/bin/hadoop; [ ! -x \"$hadoop\" ] || break; done; \
     [ -x \"$hadoop\" ] || hadoop=$(command -v hadoop) || echo \"$0: no hadoop command on this node, so libhdfs has no class path\" >&2; \
     [ -z \"$hadoop\" ] || export CLASSPATH=\"$CLASSPATH:$(\"$hadoop\" classpath --glob)\"; }";
const LIBRARIES: &str = "export LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:./:$HADOOP_HDFS_HOME/lib/native:\
     $HADOOP_HOME/lib/native:$JAVA_HOME/lib/server:$JAVA_HOME/jre/lib/amd64/server\"";

/// Sets class path and libraries if HDFS is mentioned.
pub(crate) fn set_up(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    caller: &CallerEnv,
    flag: &str,
) {
    let arg = args.last(flag);
    let at = arg.map_or(Location::Whole, FlagValue::location);
    let in_env = |name: &str| {
        let pairs = args.all("--env").map(|arg| arg.value.split_once('='));
        let matching = pairs.flatten().filter(|(other, _)| *other == name);
        matching.last().map(|(_, value)| value)
    };
    let value = arg.map(|arg| arg.value.as_str());
    let dmlc = value.or_else(|| in_env(DMLC_OPTIONS));
    let dmlc = dmlc.or_else(|| caller.variable(DMLC_OPTIONS));
    let options = dmlc.or_else(|| in_env(LIBHDFS_OPTIONS));
    let options = options.or_else(|| caller.variable(LIBHDFS_OPTIONS));
    if options.is_none() && !mentions_hdfs(&args.command) {
        return;
    }
    if let Some(options) = dmlc {
        builder.variable(None, DMLC_OPTIONS, options, at.clone());
    }
    builder.variable(None, LIBHDFS_OPTIONS, options.unwrap_or(DEFAULT_OPTIONS), at);
    builder.add_step(CLASSES.to_owned());
    builder.add_step(LIBRARIES.to_owned());
}

/// Returns true if a word, or a file among the words, contains an HDFS path.
fn mentions_hdfs(words: &[String]) -> bool {
    let mentions = |text: &str| PREFIXES.iter().any(|path| text.contains(path));
    let in_file = |word: &String| head(word).is_ok_and(|text| mentions(&text));
    words.iter().any(|word| mentions(word) || in_file(word))
}

/// Reads the beginning of a file.
fn head(path: &str) -> io::Result<String> {
    let file = File::open(path)?;
    // Do not read pipes: they may block.
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(SEARCHED_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
