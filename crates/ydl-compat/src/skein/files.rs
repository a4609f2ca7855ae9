//! Files that are shipped with a job. In skein each service has files of its own; here they are the whole job's, so that two of one
//! name go by other names, to which a task's script makes a link.

use super::{
    desk::{Desk, Tree, find, text_of},
    is_empty,
};
use ydl_jobfile::{Node, Value};

const FILE: &[&str] = &["source", "type", "visibility", "size", "timestamp"];
const ARCHIVES: [&str; 3] = [".zip", ".tar.gz", ".tgz"];

/// A file of a service.
#[derive(Debug)]
pub struct Wanted {
    role: String,
    /// Name in the task's directory.
    target: String,
    source: Node,
    unpack: bool,
    /// Name in the job.
    name: String,
}

/// The files of a service, as they were written.
pub fn of(desk: &mut Desk, role: &str, path: &str, node: Option<&Node>, all: &mut Vec<Wanted>) {
    let Some(node) = node else {
        return;
    };
    let path = format!("{path}.files");
    for (target, value) in desk.any_entries(node, &path) {
        let path = format!("{path}.{}", target.name);
        let Some((source, unpack)) = source(desk, &path, value) else {
            continue;
        };
        if target.name.contains('/') || target.name.is_empty() {
            let what = format!("`{path}`: a file's name has no directories in it");
            desk.wrong(&target.at, what, "");
            continue;
        }
        all.push(Wanted {
            role: role.to_owned(),
            target: target.name.clone(),
            source,
            unpack,
            name: target.name.clone(),
        });
    }
}

/// Returns the source of a file, and true if it is unpacked.
fn source(desk: &mut Desk, path: &str, node: &Node) -> Option<(Node, bool)> {
    let (written, kind) = match &node.value {
        Value::Map(_) => {
            desk.entries(node, path, FILE);
            for name in ["visibility", "size", "timestamp"] {
                let said = find(node, name).filter(|it| !is_empty(it));
                let usual = said.and_then(text_of).map(str::to_lowercase);
                if let Some(said) = said.filter(|_| usual.as_deref() != Some("application")) {
                    let why = match name {
                        "visibility" => "files are the submitter's own, and sent once for all jobs",
                        _ => "it is looked up",
                    };
                    desk.note_at(&said.at, &format!("`{path}.{name}` is left out: {why}"));
                }
            }
            let Some(source) = find(node, "source") else {
                let what = format!("`{path}` has no `source`");
                desk.wrong(&node.at, what, "say where it comes from");
                return None;
            };
            (source, find(node, "type"))
        }
        _ => (node, None),
    };
    let text = desk.text(written, path)?;
    let local = text.strip_prefix("file://").unwrap_or(&text).to_owned();
    let inferred = ARCHIVES.iter().any(|end| local.ends_with(end));
    let unpack = match kind.and_then(text_of).map(str::to_lowercase).as_deref() {
        None | Some("infer" | "") => inferred,
        Some("archive") => true,
        Some("file") => false,
        Some(other) => {
            let what = format!("`{path}.type` is `{other}`");
            let hint = "it is `archive`, `file` or `infer`";
            desk.wrong(&node.at, what, hint);
            return None;
        }
    };
    Some((Node::text(written.at.clone(), local), unpack))
}

/// Puts them into the job, each once; what has another name there is linked to by the scripts of its service.
pub fn put(job: &mut Tree, all: &mut [Wanted]) {
    let mut taken: Vec<(String, Node, bool)> = Vec::new();
    for wanted in all.iter_mut() {
        let same = |other: &&(String, Node, bool)| {
            other.1.value == wanted.source.value && other.2 == wanted.unpack
        };
        let named = |name: &str| taken.iter().find(|other| other.0 == name);
        match named(&wanted.target) {
            None => {}
            Some(other) if same(&other) => continue,
            Some(_) => {
                let mut name = format!("{}.{}", wanted.target, wanted.role);
                // Another file may have that name.
                while named(&name).is_some() {
                    name.push('_');
                }
                wanted.name = name;
            }
        }
        taken.push((wanted.name.clone(), wanted.source.clone(), wanted.unpack));
    }
    for (name, source, unpack) in taken {
        let at = source.at.clone();
        let value = match unpack {
            false => source,
            true => {
                let mut own = Tree::at(&at);
                own.put("source", source);
                own.put("unpack", Node::plain(at, "true"));
                own.node()
            }
        };
        job.put_in("files", &name, value);
    }
}

/// Returns commands that link files to the names that the service expects.
pub fn links(role: &str, all: &[Wanted]) -> Vec<String> {
    let own = all.iter().filter(|it| it.role == role && it.name != it.target);
    let quoted = super::super::sheet::quoted;
    let link = |it: &Wanted| format!("ln -sfn {} {}", quoted(&it.name), quoted(&it.target));
    own.map(link).collect()
}
