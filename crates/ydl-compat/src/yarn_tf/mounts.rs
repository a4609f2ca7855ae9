//! Mounts and outputs.

use crate::{
    flags::{Said, Typed},
    sheet::Sheet,
};
use ydl_jobfile::{Node, Value};

/// A place of a node's disks.
#[derive(Debug)]
pub struct Mount {
    /// Path in the task.
    target: String,
    /// Path in the agent, which copies outputs.
    seen: String,
    writable: bool,
}

impl Mount {
    /// Returns true if a path is the mount point or below it.
    fn holds(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&self.target);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// In an image, what leads to a whole path is mounted there; what leads below a task's directory is linked, also where there
/// is no image.
pub fn mounts(sheet: &mut Sheet, typed: &Typed) -> Vec<Mount> {
    let mut all = of_variables(sheet);
    for said in typed.all("--mounts") {
        for pair in said.value.split(',').filter(|pair| !pair.is_empty()) {
            all.extend(mount(sheet, said, pair, &all));
        }
    }
    all
}

/// Returns the mounts named by YARN's variable.
fn of_variables(sheet: &Sheet) -> Vec<Mount> {
    let Some(Value::List(items)) = sheet.at(&["environment", "mounts"]).map(|node| &node.value)
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
            seen: seen(sheet, source, target),
            writable: parts.next().is_none_or(|mode| !mode.starts_with("ro")),
        })
    };
    items.iter().filter_map(read).collect()
}

/// On a cluster the agent runs inside the image with its program, on one machine outside of it.
fn seen(sheet: &Sheet, source: &str, target: &str) -> String {
    let path = match target.starts_with('/') && !sheet.is_local() {
        true => target,
        false => source,
    };
    path.trim_end_matches('/').to_owned()
}

/// One of them, `source:target[:ro]`.
fn mount(sheet: &mut Sheet, said: &Said, pair: &str, others: &[Mount]) -> Option<Mount> {
    let parts: Vec<_> = pair.split(':').collect();
    let (source, target, mode) = match parts[..] {
        [source, target] => (source, target, "rw"),
        [source, target, mode @ ("ro" | "rw")] => (source, target, mode),
        _ => {
            let what = format!("`{pair}` is no mount");
            sheet.wrong(said, what, "write `/source:target`");
            return None;
        }
    };
    let image = sheet.at(&["environment"]).is_some();
    let target = target.trim_start_matches("./").trim_end_matches('/');
    let odd = target.split('/').skip(1).any(str::is_empty);
    let odd = odd || target.split('/').any(|part| matches!(part, ".." | "."));
    if !source.starts_with('/') {
        let what = format!("`{source}` is not a whole path of a node");
        sheet.wrong(said, what, "write `/source:target`");
        return None;
    }
    if sheet.is_local() && !std::path::Path::new(source).exists() {
        let what = format!("there is no `{source}` on this machine");
        sheet.wrong(said, what, "make it first, or name another place");
        return None;
    }
    if target.is_empty() || odd {
        let what = format!("`{target}` is no place for a mount");
        let hint = "name a whole path in an image, or one below the task's directory";
        sheet.wrong(said, what, hint);
        return None;
    }
    if target.starts_with('/') && !image {
        let what = format!("without an image nothing can be mounted at `{target}` of a node");
        let hint = "name a place below the task's directory, or an image with `--docker_image`";
        sheet.wrong(said, what, hint);
        return None;
    }
    let mount = Mount {
        target: target.to_owned(),
        seen: seen(sheet, source, target),
        writable: mode == "rw",
    };
    // A link behind a link would be made on the user's own disk, after removing what is there.
    let nested = |other: &&Mount| match target.starts_with('/') {
        true => other.target == target,
        false => other.holds(target) || mount.holds(&other.target),
    };
    if let Some(other) = others.iter().find(nested) {
        let what =
            format!("`{target}` and `{}` are one place, or one is in the other", other.target);
        sheet.wrong(said, what, "give each a place of its own");
        return None;
    }
    if image {
        let within = if target.starts_with('/') { target } else { source };
        let mount = format!("{source}:{within}:{mode}");
        sheet.add(&["environment", "mounts"], Node::text(said.at(), mount));
    }
    if !target.starts_with('/') {
        sheet.link(source, target);
    }
    Some(mount)
}

/// Adds outputs. Destinations below a mount are translated into the agent's paths.
pub fn outputs(sheet: &mut Sheet, typed: &Typed, mounts: &[Mount], several: bool) {
    for said in typed.all("--output") {
        // The destination may have a scheme in it.
        for pair in said.value.split(',').filter(|pair| !pair.is_empty()) {
            let Some((source, destination)) =
                pair.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty())
            else {
                let what = format!("`{pair}` does not say where it goes");
                sheet.wrong(said, what, "write `SOURCE:DESTINATION`");
                continue;
            };
            if source.starts_with('/') || source.split('/').any(|part| part == "..") {
                let what = format!("`{source}` is not in the task's directory");
                sheet.wrong(said, what, "name what the program makes where it runs");
                continue;
            }
            let near = destination.trim_start_matches("./");
            let below = mounts.iter().filter(|mount| mount.holds(near));
            let Some(mount) = below.max_by_key(|mount| mount.target.len()) else {
                if sheet.is_local() && !destination.contains("://") {
                    let note = format!(
                        "`{source}` goes to `{destination}` of this machine: with `--cluster local` there is no HDFS"
                    );
                    sheet.notes.push(note);
                }
                sheet.output(source, destination, said, several);
                continue;
            };
            if !mount.writable {
                let what = format!("`{}` is mounted to be read only", mount.target);
                sheet.wrong(said, what, "mount it without `:ro`, or name another place");
                continue;
            }
            let rest = &near[mount.target.len()..];
            let to = match sheet.is_local() {
                true => format!("{}{rest}", mount.seen),
                false => format!("file://{}{rest}", mount.seen),
            };
            sheet.output(source, &to, said, several);
        }
    }
}
