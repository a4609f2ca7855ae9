//! Command-line parser.

use std::time::Duration;
use testbed::{
    Error, ErrorKind, Failover, Hdfs, Label, NODES_MAX, Options, Protection, Queue, Scheduling,
    Version,
};

pub(crate) const HELP: &str = "\
Run a real Hadoop cluster on this machine

usage: testbed up [OPTIONS]          start a cluster and run it until Ctrl-C
       testbed fetch [--version V]…  only download Hadoop's jars [default: all versions]

  --version V        2.10.2, 3.3.6, 3.4.2 or 3.5.0 [default: 3.5.0]
  --nodes N          number of NodeManagers, on 127.0.0.11, 127.0.0.12, … [default: 3]
  --memory MIB       memory per node [default: 8192]
  --vcores N         virtual cores per node [default: 8]
  --gpus N[,N…]      `yarn.io/gpu` devices on every node, or a list with one number per node
  --label L=NM[,NM…] a node label and its nodes, such as gpu=nm3
  --queue Q=PERCENT  a queue below the root; the shares add up to 100
  --hdfs KIND        one, none, two, ha (two NameNodes for one file system), or viewfs: a mount
                     table over a file system like `ha` and another one [default: one]
  --ha [zk]          two ResourceManagers with manual failover; with `zk`, ZooKeeper fails over
  --kerberos [QOP]   Kerberos with authentication, integrity or privacy [default: authentication]
  --user NAME        add a user with a home directory and, with Kerberos, a keytab
  --env NAME=VALUE   add a variable to the environment of containers
  --heartbeats       allocate containers on node heartbeats, the default up to 3.4
  --preemption SECS  enable preemption, with this time between notice and kill
  --tokens SECS      interval at which token keys are rolled

Requires Java 17 and Maven. Jars are cached in ${XDG_CACHE_HOME:-~/.cache}/ydl/hadoop.
TESTBED_KEEP=1 keeps the cluster's directory, including logs.
";

#[derive(Debug)]
pub(crate) enum Subcommand {
    Up(Box<Options>),
    Fetch(Vec<Version>),
    Help,
}

/// Parses the command line.
pub(crate) fn parse(arguments: Vec<String>) -> Result<Subcommand, Error> {
    if arguments.iter().any(|argument| ["--help", "-h"].contains(&argument.as_str())) {
        return Ok(Subcommand::Help);
    }
    // `--version=3.5.0` means `--version 3.5.0`; values such as `gpu=nm3` contain `=` too.
    let arguments = arguments.into_iter().flat_map(|argument| match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => {
            vec![flag.to_owned(), value.to_owned()]
        }
        _ => vec![argument],
    });
    let mut arguments = arguments.collect::<Vec<_>>().into_iter().peekable();
    match arguments.next().as_deref() {
        Some("up") => Ok(Subcommand::Up(Box::new(parse_up(&mut arguments)?))),
        Some("fetch") => parse_fetch(&mut arguments),
        None | Some("help") => Ok(Subcommand::Help),
        Some(other) => Err(usage_error(format!("unknown command `{other}`"))),
    }
}

type Arguments = std::iter::Peekable<std::vec::IntoIter<String>>;

fn parse_fetch(arguments: &mut Arguments) -> Result<Subcommand, Error> {
    let mut versions = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--version" => versions.push(value(arguments, &argument)?.parse()?),
            _ => return Err(usage_error(format!("unknown option `{argument}` of `fetch`"))),
        }
    }
    if versions.is_empty() {
        versions = Version::ALL.to_vec();
    }
    Ok(Subcommand::Fetch(versions))
}

fn parse_up(arguments: &mut Arguments) -> Result<Options, Error> {
    let mut options = Options { nodes: 3, ..Options::new(Version::NEWEST) };
    let mut queues = Vec::new();
    let mut gpus = Vec::new();
    while let Some(argument) = arguments.next() {
        let flag = argument.as_str();
        match flag {
            "--version" => options.version = value(arguments, flag)?.parse()?,
            "--nodes" => options.nodes = number(&value(arguments, flag)?, flag)?,
            "--memory" => options.node_memory_mib = number(&value(arguments, flag)?, flag)?,
            "--vcores" => options.node_vcores = number(&value(arguments, flag)?, flag)?,
            "--gpus" => {
                let given = value(arguments, flag)?;
                gpus = given.split(',').map(|n| number(n, flag)).collect::<Result<_, _>>()?;
            }
            "--label" => options.labels.push(label(&value(arguments, flag)?)?),
            "--queue" => {
                let (name, percent) = pair(&value(arguments, flag)?, flag)?;
                queues.push(Queue::new(&name, number(&percent, flag)?));
            }
            "--hdfs" => {
                options.hdfs = match value(arguments, flag)?.as_str() {
                    "one" => Hdfs::One,
                    "none" => Hdfs::None,
                    "two" => Hdfs::Two,
                    "ha" => Hdfs::HighlyAvailable,
                    "viewfs" => Hdfs::ViewFs,
                    other => {
                        return Err(usage_error(format!("invalid value `{other}` of `{flag}`")));
                    }
                };
            }
            "--ha" => {
                let zookeeper = arguments.next_if(|next| next == "zk").is_some();
                let failover = if zookeeper { Failover::Automatic } else { Failover::Manual };
                options.rm_ha = Some(failover);
            }
            "--kerberos" => {
                options.kerberos = Some(match arguments.next_if(|next| !next.starts_with("--")) {
                    None => Protection::Authentication,
                    Some(name) => protection(&name)?,
                });
            }
            "--user" => options.users.push(value(arguments, flag)?),
            "--env" => options.variables.push(pair(&value(arguments, flag)?, flag)?),
            "--heartbeats" => options.scheduling = Scheduling::OnHeartbeat,
            "--preemption" => options.preemption = Some(seconds(arguments, flag)?),
            "--tokens" => options.token_interval = Some(seconds(arguments, flag)?),
            _ => return Err(usage_error(format!("unknown option `{argument}` of `up`"))),
        }
    }
    if !queues.is_empty() {
        options.queues = queues;
    }
    options.gpus = match gpus[..] {
        // Validation rejects too many nodes later; this bound only limits memory.
        [every] => vec![every; options.nodes.min(NODES_MAX)],
        _ => gpus,
    };
    if options.kerberos.is_some() && options.users.is_empty() {
        options.users.push("alice".to_owned());
    }
    Ok(options)
}

fn usage_error(message: String) -> Error {
    Error {
        kind: ErrorKind::InvalidRequest,
        message,
        hint: Some("see `testbed help`".to_owned()),
        log: None,
    }
}

fn value(arguments: &mut Arguments, flag: &str) -> Result<String, Error> {
    let value = arguments.next_if(|next| !next.starts_with("--"));
    value.ok_or_else(|| usage_error(format!("missing value of `{flag}`")))
}

fn number<N: std::str::FromStr>(text: &str, flag: &str) -> Result<N, Error> {
    text.parse()
        .map_err(|_| usage_error(format!("invalid value `{text}` of `{flag}`: expected a number")))
}

fn seconds(arguments: &mut Arguments, flag: &str) -> Result<Duration, Error> {
    Ok(Duration::from_secs(number(&value(arguments, flag)?, flag)?))
}

fn pair(text: &str, flag: &str) -> Result<(String, String), Error> {
    let (left, right) = text.split_once('=').ok_or_else(|| {
        usage_error(format!("invalid value `{text}` of `{flag}`: expected `NAME=…`"))
    })?;
    Ok((left.to_owned(), right.to_owned()))
}

fn label(text: &str) -> Result<Label, Error> {
    let (name, nodes) = pair(text, "--label")?;
    let index = |node: &str| number(node.strip_prefix("nm").unwrap_or(node), "--label");
    Ok(Label {
        name,
        nodes: nodes.split(',').map(index).collect::<Result<_, _>>()?,
        exclusive: true,
    })
}

fn protection(name: &str) -> Result<Protection, Error> {
    let all = [Protection::Authentication, Protection::Integrity, Protection::Privacy];
    let found = all.into_iter().find(|protection| protection.name() == name);
    found.ok_or_else(|| usage_error(format!("invalid value `{name}` of `--kerberos`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(line: &str) -> Result<Options, String> {
        let arguments = format!("up {line}").split_whitespace().map(str::to_owned).collect();
        match parse(arguments) {
            Ok(Subcommand::Up(options)) => Ok(*options),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn up_parses_all_options() {
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
        assert_eq!(up("--hdfs viewfs").unwrap().hdfs, Hdfs::ViewFs);
        let variable = ("A".to_owned(), "b=c".to_owned());
        assert_eq!(up("--env A=b=c").unwrap().variables, [variable]);
        let many = up("--nodes 1000000000000 --gpus 1").unwrap();
        assert_eq!(many.gpus.len(), NODES_MAX, "validation rejects them later");
    }

    #[test]
    fn usage_errors_name_the_argument() {
        assert_eq!(up("--node 3").unwrap_err(), "unknown option `--node` of `up`");
        assert_eq!(up("--nodes").unwrap_err(), "missing value of `--nodes`");
        assert_eq!(
            up("--nodes many").unwrap_err(),
            "invalid value `many` of `--nodes`: expected a number"
        );
        assert_eq!(
            up("--label gpu").unwrap_err(),
            "invalid value `gpu` of `--label`: expected `NAME=…`"
        );
        assert_eq!(up("--kerberos maybe").unwrap_err(), "invalid value `maybe` of `--kerberos`");
        assert_eq!(up("--version 9").unwrap_err(), "unsupported Hadoop version `9`");
    }
}
