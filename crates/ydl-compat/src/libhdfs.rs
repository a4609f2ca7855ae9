//! Programs that read HDFS through libhdfs, whose JVM needs classes and libraries of the Hadoop that their node has.
//!
//! dmlc-core asked every node for them before every program. That takes a while, so it is done for those who speak of HDFS: by
//! libhdfs's options, or by a path of HDFS among the program's words or in one of the files among them.

use super::{
    flags::{Said, Typed},
    sheet::{Here, Sheet},
};
use std::{
    fs::File,
    io::{self, Read},
};
use ydl_jobfile::Location;

/// Options of that JVM, as dmlc-core calls them and as libhdfs does.
const OF_DMLC: &str = "DMLC_HDFS_OPTS";
const OF_JVM: &str = "LIBHDFS_OPTS";
/// Default options of the JVM in dmlc-core.
const USUAL: &str = "-Xmx128m";
/// Bytes of a file that are searched.
const LOOK_BYTES: u64 = 1 << 20;
/// Prefixes of HDFS paths.
const PATHS: [&str; 2] = ["hdfs://", "viewfs://"];

/// The first Hadoop of the node's: by its variables, as its administrators set them, or by its path.
const CLASSES: &str = "{ for hadoop in \"$HADOOP_HOME\" \"$HADOOP_PREFIX\" \"$HADOOP_COMMON_HOME\" \"$HADOOP_HDFS_HOME\" /usr; do \
     hadoop=$hadoop/bin/hadoop; [ ! -x \"$hadoop\" ] || break; done; \
     [ -x \"$hadoop\" ] || hadoop=$(command -v hadoop) || echo \"$0: this node has no hadoop command: libhdfs finds no classes\" >&2; \
     [ -z \"$hadoop\" ] || export CLASSPATH=\"$CLASSPATH:$(\"$hadoop\" classpath --glob)\"; }";
const LIBRARIES: &str = "export LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:./:$HADOOP_HDFS_HOME/lib/native:\
     $HADOOP_HOME/lib/native:$JAVA_HOME/lib/server:$JAVA_HOME/jre/lib/amd64/server\"";

/// Lets programs find them, where anything speaks of HDFS.
pub fn set_up(sheet: &mut Sheet, typed: &Typed, here: &Here, flag: &str) {
    let said = typed.last(flag);
    let at = said.map_or(Location::Whole, Said::at);
    let given = |name: &str| {
        let pairs = typed.all("--env").map(|said| said.value.split_once('='));
        let own = pairs.flatten().filter(|(own, _)| *own == name);
        own.last().map(|(_, value)| value)
    };
    let value = said.map(|said| said.value.as_str());
    let of_dmlc = value.or_else(|| given(OF_DMLC));
    let of_dmlc = of_dmlc.or_else(|| here.variable(OF_DMLC));
    let options = of_dmlc.or_else(|| given(OF_JVM));
    let options = options.or_else(|| here.variable(OF_JVM));
    if options.is_none() && !speaks_of_hdfs(&typed.command) {
        return;
    }
    if let Some(options) = of_dmlc {
        sheet.variable(None, OF_DMLC, options, at.clone());
    }
    sheet.variable(None, OF_JVM, options.unwrap_or(USUAL), at);
    sheet.before(CLASSES.to_owned());
    sheet.before(LIBRARIES.to_owned());
}

/// Returns true if a word, or a file among the words, contains an HDFS path.
fn speaks_of_hdfs(words: &[String]) -> bool {
    let speaks = |text: &str| PATHS.iter().any(|path| text.contains(path));
    let in_file = |word: &String| head(word).is_ok_and(|text| speaks(&text));
    words.iter().any(|word| speaks(word) || in_file(word))
}

/// The beginning of a file.
fn head(path: &str) -> io::Result<String> {
    let file = File::open(path)?;
    // Do not read pipes: they may block.
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(LOOK_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
