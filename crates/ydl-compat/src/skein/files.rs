//! Files that are shipped with a job. In skein each service has its own files. Here they belong to the whole job, so a file
//! whose name is taken gets another name, and the scripts of its service link to it.

use super::{
    context::{Context, MapBuilder, find, text_of},
    is_empty,
};
use crate::text::shell_quoted;
use ydl_jobfile::{Node, Value};

const FILE: &[&str] = &["source", "type", "visibility", "size", "timestamp"];
const ARCHIVES: [&str; 3] = [".zip", ".tar.gz", ".tgz"];

/// A file of a service.
#[derive(Debug)]
pub(crate) struct ServiceFile {
    pub role: String,
    /// Name in the task's directory.
    target: String,
    pub source: Node,
    unpack: bool,
    /// Name in the job.
    name: String,
}

/// Reads the files of a service.
pub(crate) fn collect(
    context: &mut Context,
    role: &str,
    path: &str,
    node: Option<&Node>,
    all: &mut Vec<ServiceFile>,
) {
    let Some(node) = node else {
        return;
    };
    let path = format!("{path}.files");
    for (target, value) in context.entries(node, &path) {
        let path = format!("{path}.{}", target.name);
        let Some((source, unpack)) = source(context, &path, value) else {
            continue;
        };
        if target.name.contains('/') || target.name.is_empty() {
            let what = format!("`{path}`: a file name must not contain `/`");
            context.error(&target.at, what, "");
            continue;
        }
        all.push(ServiceFile {
            role: role.to_owned(),
            target: target.name.clone(),
            source,
            unpack,
            name: target.name.clone(),
        });
    }
}

/// Returns the source of a file, and true if it is unpacked.
fn source(context: &mut Context, path: &str, node: &Node) -> Option<(Node, bool)> {
    let (written, kind) = match &node.value {
        Value::Map(_) => {
            context.known_entries(node, path, FILE);
            for name in ["visibility", "size", "timestamp"] {
                let value = find(node, name).filter(|it| !is_empty(it));
                let text = value.and_then(text_of).map(str::to_lowercase);
                if let Some(value) = value.filter(|_| text.as_deref() != Some("application")) {
                    let why = match name {
                        "visibility" => "files belong to the submitter and are uploaded once",
                        _ => "it is read from the file",
                    };
                    context.note_at(&value.at, &format!("`{path}.{name}` is ignored: {why}"));
                }
            }
            let Some(source) = find(node, "source") else {
                let what = format!("`{path}` has no `source`");
                context.error(&node.at, what, "set it to a path or URL");
                return None;
            };
            (source, find(node, "type"))
        }
        _ => (node, None),
    };
    let text = context.text(written, path)?;
    let local = text.strip_prefix("file://").unwrap_or(&text).to_owned();
    let inferred = ARCHIVES.iter().any(|end| local.ends_with(end));
    let unpack = match kind.and_then(text_of).map(str::to_lowercase).as_deref() {
        None | Some("infer" | "") => inferred,
        Some("archive") => true,
        Some("file") => false,
        Some(other) => {
            let what = format!("`{path}.type`: unknown type `{other}`");
            let hint = "use `archive`, `file` or `infer`";
            context.error(&node.at, what, hint);
            return None;
        }
    };
    Some((Node::text(written.at.clone(), local), unpack))
}

/// Adds the files to the job, each once and under a unique name.
pub(crate) fn add_to_job(job: &mut MapBuilder, all: &mut [ServiceFile]) {
    let mut taken: Vec<(String, Node, bool)> = Vec::new();
    for file in all.iter_mut() {
        let same = |other: &&(String, Node, bool)| {
            other.1.value == file.source.value && other.2 == file.unpack
        };
        let named = |name: &str| taken.iter().find(|other| other.0 == name);
        match named(&file.target) {
            None => {}
            Some(other) if same(&other) => continue,
            Some(_) => {
                let mut name = format!("{}.{}", file.target, file.role);
                // This name may be taken, too.
                while named(&name).is_some() {
                    name.push('_');
                }
                file.name = name;
            }
        }
        taken.push((file.name.clone(), file.source.clone(), file.unpack));
    }
    for (name, source, unpack) in taken {
        let at = source.at.clone();
        let value = match unpack {
            false => source,
            true => {
                let mut map = MapBuilder::at(&at);
                map.put("source", source);
                map.put("unpack", Node::plain(at, "true"));
                map.node()
            }
        };
        job.put_in("files", &name, value);
    }
}

/// Returns commands that link files to the names that the service expects.
pub(crate) fn link_commands(role: &str, all: &[ServiceFile]) -> Vec<String> {
    let renamed = all.iter().filter(|it| it.role == role && it.name != it.target);
    let link = |it: &ServiceFile| {
        format!("ln -sfn {} {}", shell_quoted(&it.name), shell_quoted(&it.target))
    };
    renamed.map(link).collect()
}
