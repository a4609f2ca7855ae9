//! The words of the command line.

use std::time::Duration;
use testbed::{
    Failover, Failure, Hdfs, Kind, Label, NODES_MAX, Options, Protection, Queue, Scheduling,
    Version,
};

pub const HELP: &str = "\
A real Hadoop on this machine, for tests and for trying things out

usage: testbed up [OPTIONS]          start a cluster and keep it until Ctrl-C
       testbed fetch [--version V]…  only fetch Hadoop's jars (default: every version)

  --version V        2.10.2, 3.3.6, 3.4.2 or 3.5.0 (the default)
  --nodes N          NodeManagers, on 127.0.0.11, 127.0.0.12, … (default: 3)
  --memory MIB       what each node offers (default: 8192)
  --vcores N         what each node offers (default: 8)
  --gpus N[,N…]      `yarn.io/gpu` devices: on every node, or on each in turn
  --label L=NM[,NM…] a node label and its nodes, such as gpu=nm3
  --queue Q=PERCENT  a queue below the root; together they make 100
  --hdfs KIND        one (the default), none, two, or ha: two NameNodes for one file system
  --ha [zk]          two ResourceManagers; the first is active until somebody changes it or,
                     with `zk`, until it dies: ZooKeeper decides
  --kerberos [QOP]   a KDC, and authentication (the default), integrity or privacy
  --user NAME        a user with a home directory and, with Kerberos, a keytab
  --heartbeats       hand out containers with the nodes' beats, as up to 3.4
  --preemption SECS  let queues take back their share, this long after a notice
  --tokens SECS      change token keys this often

Needs Java 17 and Maven. Jars are kept in ${XDG_CACHE_HOME:-~/.cache}/ydl/hadoop.
TESTBED_KEEP=1 keeps the cluster's directory, logs and all.
";

#[derive(Debug)]
pub enum Verb {
    Up(Box<Options>),
    Fetch(Vec<Version>),
    Help,
}

/// What was typed, understood.
pub fn read(words: Vec<String>) -> Result<Verb, Failure> {
    if words.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        return Ok(Verb::Help);
    }
    // `--version=3.5.0` is `--version 3.5.0`; other words may hold the sign too (`gpu=nm3`).
    let words = words.into_iter().flat_map(|word| match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => {
            vec![flag.to_owned(), value.to_owned()]
        }
        _ => vec![word],
    });
    let mut words = words.collect::<Vec<_>>().into_iter().peekable();
    match words.next().as_deref() {
        Some("up") => Ok(Verb::Up(Box::new(read_up(&mut words)?))),
        Some("fetch") => read_fetch(&mut words),
        None | Some("help") => Ok(Verb::Help),
        Some(other) => Err(wrong(format!("there is no command `{other}`"))),
    }
}

type Words = std::iter::Peekable<std::vec::IntoIter<String>>;

fn read_fetch(words: &mut Words) -> Result<Verb, Failure> {
    let mut versions = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--version" => versions.push(value(words, &word)?.parse()?),
            _ => return Err(wrong(format!("`fetch` does not know `{word}`"))),
        }
    }
    if versions.is_empty() {
        versions = Version::ALL.to_vec();
    }
    Ok(Verb::Fetch(versions))
}

fn read_up(words: &mut Words) -> Result<Options, Failure> {
    let mut options = Options { nodes: 3, ..Options::new(Version::NEWEST) };
    let mut queues = Vec::new();
    let mut gpus = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.as_str();
        match flag {
            "--version" => options.version = value(words, flag)?.parse()?,
            "--nodes" => options.nodes = number(&value(words, flag)?, flag)?,
            "--memory" => options.node_memory_mib = number(&value(words, flag)?, flag)?,
            "--vcores" => options.node_vcores = number(&value(words, flag)?, flag)?,
            "--gpus" => {
                let given = value(words, flag)?;
                gpus = given.split(',').map(|n| number(n, flag)).collect::<Result<_, _>>()?;
            }
            "--label" => options.labels.push(label(&value(words, flag)?)?),
            "--queue" => {
                let (name, percent) = pair(&value(words, flag)?, flag)?;
                queues.push(Queue::new(&name, number(&percent, flag)?));
            }
            "--hdfs" => {
                options.hdfs = match value(words, flag)?.as_str() {
                    "one" => Hdfs::One,
                    "none" => Hdfs::None,
                    "two" => Hdfs::Two,
                    "ha" => Hdfs::HighlyAvailable,
                    other => return Err(wrong(format!("`{flag}` cannot be `{other}`"))),
                };
            }
            "--ha" => {
                let zookeeper = words.next_if(|next| next == "zk").is_some();
                let failover = if zookeeper { Failover::Automatic } else { Failover::Manual };
                options.rm_ha = Some(failover);
            }
            "--kerberos" => {
                options.kerberos = Some(match words.next_if(|next| !next.starts_with("--")) {
                    None => Protection::Authentication,
                    Some(name) => protection(&name)?,
                });
            }
            "--user" => options.users.push(value(words, flag)?),
            "--heartbeats" => options.scheduling = Scheduling::OnHeartbeat,
            "--preemption" => options.preemption = Some(seconds(words, flag)?),
            "--tokens" => options.token_interval = Some(seconds(words, flag)?),
            _ => return Err(wrong(format!("`up` does not know `{word}`"))),
        }
    }
    if !queues.is_empty() {
        options.queues = queues;
    }
    options.gpus = match gpus[..] {
        // How many nodes are too many is said later; here it must only not fill the memory.
        [every] => vec![every; options.nodes.min(NODES_MAX)],
        _ => gpus,
    };
    if options.kerberos.is_some() && options.users.is_empty() {
        options.users.push("alice".to_owned());
    }
    Ok(options)
}

fn wrong(what: String) -> Failure {
    Failure {
        kind: Kind::Wrong,
        what,
        hint: Some("`testbed help` lists what there is".to_owned()),
        log: None,
    }
}

fn value(words: &mut Words, flag: &str) -> Result<String, Failure> {
    let value = words.next_if(|next| !next.starts_with("--"));
    value.ok_or_else(|| wrong(format!("`{flag}` needs a value")))
}

fn number<N: std::str::FromStr>(text: &str, flag: &str) -> Result<N, Failure> {
    text.parse().map_err(|_| wrong(format!("`{flag}` needs a number, not `{text}`")))
}

fn seconds(words: &mut Words, flag: &str) -> Result<Duration, Failure> {
    Ok(Duration::from_secs(number(&value(words, flag)?, flag)?))
}

fn pair(text: &str, flag: &str) -> Result<(String, String), Failure> {
    let (left, right) = text
        .split_once('=')
        .ok_or_else(|| wrong(format!("`{flag}` needs `NAME=…`, not `{text}`")))?;
    Ok((left.to_owned(), right.to_owned()))
}

fn label(text: &str) -> Result<Label, Failure> {
    let (name, nodes) = pair(text, "--label")?;
    let index = |node: &str| number(node.strip_prefix("nm").unwrap_or(node), "--label");
    Ok(Label {
        name,
        nodes: nodes.split(',').map(index).collect::<Result<_, _>>()?,
        exclusive: true,
    })
}

fn protection(name: &str) -> Result<Protection, Failure> {
    let all = [Protection::Authentication, Protection::Integrity, Protection::Privacy];
    let found = all.into_iter().find(|protection| protection.name() == name);
    found.ok_or_else(|| wrong(format!("`--kerberos` cannot be `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(line: &str) -> Result<Options, String> {
        let words = format!("up {line}").split_whitespace().map(str::to_owned).collect();
        match read(words) {
            Ok(Verb::Up(options)) => Ok(*options),
            Ok(other) => Err(format!("{other:?}")),
            Err(failure) => Err(failure.what),
        }
    }

    #[test]
    fn what_is_typed_is_what_is_started() {
        let options =
            up("--version=3.3.6 --nodes 2 --gpus 4 --label gpu=nm2 --ha --kerberos privacy");
        let options = options.unwrap();
        assert_eq!((options.version, options.nodes), (Version::V3_3_6, 2));
        assert_eq!(options.gpus, [4, 4]);
        assert_eq!(
            (options.labels[0].name.as_str(), &options.labels[0].nodes[..]),
            ("gpu", &[2][..])
        );
        assert_eq!(options.rm_ha, Some(Failover::Manual));
        assert_eq!(options.kerberos, Some(Protection::Privacy));
        assert_eq!(options.users, ["alice"]);
        assert_eq!(up("--ha zk --kerberos").unwrap().rm_ha, Some(Failover::Automatic));
        assert_eq!(up("--gpus 0,2").unwrap().gpus, [0, 2]);
        let many = up("--nodes 1000000000000 --gpus 1").unwrap();
        assert_eq!(many.gpus.len(), NODES_MAX, "they are refused later");
    }

    #[test]
    fn what_is_mistyped_is_named() {
        assert_eq!(up("--node 3").unwrap_err(), "`up` does not know `--node`");
        assert_eq!(up("--nodes").unwrap_err(), "`--nodes` needs a value");
        assert_eq!(up("--nodes many").unwrap_err(), "`--nodes` needs a number, not `many`");
        assert_eq!(up("--label gpu").unwrap_err(), "`--label` needs `NAME=…`, not `gpu`");
        assert_eq!(up("--kerberos maybe").unwrap_err(), "`--kerberos` cannot be `maybe`");
        assert_eq!(up("--version 9").unwrap_err(), "there is no Hadoop `9` here");
    }
}
