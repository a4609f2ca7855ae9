//! Mounts and outputs of Yarn-TF.

use crate::{
    JobFileBuilder,
    parser::{FlagValue, ParsedArgs},
};
use ydl_jobfile::{Node, Value};

/// Directory of a node that tasks see.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Path in the task.
    target: String,
    /// Path in the agent, which copies outputs.
    agent_path: String,
    writable: bool,
}

impl Mount {
    /// Returns true if a path is the mount point or below it.
    fn contains(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&self.target);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Adds mounts. In an image, absolute targets are mounted. Targets below a task's directory are linked, with an image or
/// without.
pub(crate) fn mounts(builder: &mut JobFileBuilder, args: &ParsedArgs) -> Vec<Mount> {
    let mut all = runtime_mounts(builder);
    for arg in args.all("--mounts") {
        for pair in arg.value.split(',').filter(|pair| !pair.is_empty()) {
            all.extend(mount(builder, arg, pair, &all));
        }
    }
    all
}

/// Returns the mounts in YARN's variable.
fn runtime_mounts(builder: &JobFileBuilder) -> Vec<Mount> {
    let Some(Value::List(items)) = builder.get(&["environment", "mounts"]).map(|node| &node.value)
    else {
        return Vec::new();
    };
    let read = |item: &Node| {
        let Value::Scalar { text, .. } = &item.value else {
            return None;
        };
        let mut parts = text.split(':');
        let (source, target) = (parts.next()?, parts.next()?);
        Some(Mount {
            target: target.trim_end_matches('/').to_owned(),
            agent_path: agent_path(builder, source, target),
            writable: parts.next().is_none_or(|mode| !mode.starts_with("ro")),
        })
    };
    items.iter().filter_map(read).collect()
}

/// Returns the path of a mount in the agent, which on a cluster runs inside the image, on one machine outside of it.
fn agent_path(builder: &JobFileBuilder, source: &str, target: &str) -> String {
    let path = match target.starts_with('/') && !builder.is_local() {
        true => target,
        false => source,
    };
    path.trim_end_matches('/').to_owned()
}

/// Adds one mount, `source:target[:ro]`.
fn mount(
    builder: &mut JobFileBuilder,
    arg: &FlagValue,
    pair: &str,
    others: &[Mount],
) -> Option<Mount> {
    let parts: Vec<_> = pair.split(':').collect();
    let (source, target, mode) = match parts[..] {
        [source, target] => (source, target, "rw"),
        [source, target, mode @ ("ro" | "rw")] => (source, target, mode),
        _ => {
            let what = format!("invalid mount `{pair}`");
            builder.error(arg, what, "write `/source:target`");
            return None;
        }
    };
    let image = builder.get(&["environment"]).is_some();
    let target = target.trim_start_matches("./").trim_end_matches('/');
    let invalid = target.split('/').skip(1).any(str::is_empty);
    let invalid = invalid || target.split('/').any(|part| matches!(part, ".." | "."));
    if !source.starts_with('/') {
        let what = format!("`{source}` is not an absolute path");
        builder.error(arg, what, "write `/source:target`");
        return None;
    }
    if builder.is_local() && !std::path::Path::new(source).exists() {
        let what = format!("`{source}` does not exist on this machine");
        builder.error(arg, what, "create it, or name another path");
        return None;
    }
    if target.is_empty() || invalid {
        let what = format!("`{target}` is not a valid mount target");
        let hint = "use an absolute path in an image, or a path below the task's directory";
        builder.error(arg, what, hint);
        return None;
    }
    if target.starts_with('/') && !image {
        let what = format!("cannot mount at `{target}` without an image");
        let hint = "use a path below the task's directory, or name an image with `--docker_image`";
        builder.error(arg, what, hint);
        return None;
    }
    let mount = Mount {
        target: target.to_owned(),
        agent_path: agent_path(builder, source, target),
        writable: mode == "rw",
    };
    // A link below a link would replace files on the mounted disk.
    let overlaps = |other: &&Mount| match target.starts_with('/') {
        true => other.target == target,
        false => other.contains(target) || mount.contains(&other.target),
    };
    if let Some(other) = others.iter().find(overlaps) {
        let what = format!("mount targets `{target}` and `{}` overlap", other.target);
        builder.error(arg, what, "use separate targets");
        return None;
    }
    if image {
        let within = if target.starts_with('/') { target } else { source };
        let mount = format!("{source}:{within}:{mode}");
        builder.append(&["environment", "mounts"], Node::text(arg.location(), mount));
    }
    if !target.starts_with('/') {
        builder.link(source, target);
    }
    Some(mount)
}

/// Adds outputs. Destinations below a mount are translated into the agent's paths.
pub(crate) fn outputs(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    mounts: &[Mount],
    several: bool,
) {
    for arg in args.all("--output") {
        // A destination may contain colons.
        for pair in arg.value.split(',').filter(|pair| !pair.is_empty()) {
            let Some((source, destination)) =
                pair.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty())
            else {
                let what = format!("`{pair}` has no destination");
                builder.error(arg, what, "write `SOURCE:DESTINATION`");
                continue;
            };
            if source.starts_with('/') || source.split('/').any(|part| part == "..") {
                let what = format!("`{source}` is not in the task's directory");
                builder.error(
                    arg,
                    what,
                    "name a path below the directory in which the program runs",
                );
                continue;
            }
            let relative = destination.trim_start_matches("./");
            let below = mounts.iter().filter(|mount| mount.contains(relative));
            let Some(mount) = below.max_by_key(|mount| mount.target.len()) else {
                if builder.is_local() && !destination.contains("://") {
                    let note = format!(
                        "`{source}` goes to `{destination}` on this machine, because `--cluster local` has no HDFS"
                    );
                    builder.notes.push(note);
                }
                builder.output(source, destination, arg, several);
                continue;
            };
            if !mount.writable {
                let what = format!("`{}` is mounted read-only", mount.target);
                builder.error(arg, what, "mount it without `:ro`, or name another destination");
                continue;
            }
            let rest = &relative[mount.target.len()..];
            let to = match builder.is_local() {
                true => format!("{}{rest}", mount.agent_path),
                false => format!("file://{}{rest}", mount.agent_path),
            };
            builder.output(source, &to, arg, several);
        }
    }
}
