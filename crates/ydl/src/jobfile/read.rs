//! From the located tree to a job.

use super::{
    fields::{Map, Reader, count, or_none, truth},
    nearest::nearest,
    tree::{self, Node, Value},
    units::{port_range, span},
    wrong::Wrong,
};
use crate::os::reason;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use ydl_core::{
    Draft, Framework, JobSpec, Span,
    spec::{self, Backoff, Blame, Deadlines, Environment, Gang, Output},
};

const GANG: Gang = Gang {
    together: false,
    hold: Span::minutes(5),
    retries: 3,
    backoff: Backoff {
        first: Span::seconds(30),
        most: Span::minutes(10),
    },
};

/// Reads a whole job. Relative paths count from `base`, which is absolute; `name` is used where none is given.
pub fn job(root: &Node, base: &str, name: &str) -> Result<JobSpec, Vec<Wrong>> {
    let mut reader = Reader::default();
    let map = reader.map(root, "", "");
    let framework = reader.framework(&map);
    let draft = Draft {
        name: reader
            .text(&map, "name")
            .unwrap_or_else(|| name.to_string()),
        framework,
        environment: reader.environment(&map, base),
        files: reader.files(&map, base),
        roles: reader.roles(&map, framework),
        outputs: reader.outputs(&map, base),
        env: reader.env(&map),
        gang: reader.gang(&map, framework),
        deadlines: reader.deadlines(&map),
        blame: reader.blame(&map),
        ports: reader.value(&map, "ports", port_range).unwrap_or_default(),
        on_cluster: spec::OnCluster {
            queue: reader.text(&map, "queue"),
            node_label: reader.text(&map, "node_label"),
            ..spec::OnCluster::default()
        },
    };
    let Reader { mut wrongs, told } = reader;
    if told.contains("") {
        return Err(wrongs);
    }
    match JobSpec::new(draft) {
        Ok(spec) if wrongs.is_empty() => return Ok(spec),
        Ok(_) => {}
        Err(complaints) => {
            for complaint in complaints.into_iter().filter(|c| !told.contains(&c.key)) {
                let at = tree::locate(root, &complaint.key);
                let hint = complaint.hint.clone().unwrap_or_default();
                wrongs.push(Wrong::new(at, complaint.to_string()).hint(hint));
            }
        }
    }
    if wrongs.is_empty() {
        // Every complaint was suppressed as a consequence of another; there must be one to suppress it.
        wrongs.push(Wrong::new(root.at.clone(), "the job cannot be run"));
    }
    Err(wrongs)
}

impl Reader {
    fn framework(&mut self, map: &Map) -> Framework {
        let read = |text: &str| {
            text.parse::<Framework>().map_err(|what| {
                let known: Vec<_> = Framework::ALL.iter().map(|f| f.to_string()).collect();
                let near = nearest(text, known.iter().map(String::as_str));
                (
                    what,
                    near.map(|near| format!("did you mean `{near}`?"))
                        .unwrap_or_default(),
                )
            })
        };
        let found = self.value(map, "framework", read);
        if found.is_none() && map.find("framework").is_some() {
            // Whether this role or that gang fits an unknown framework cannot be said.
            self.told.extend(["roles".to_string(), "gang".to_string()]);
        }
        found.unwrap_or(Framework::None)
    }

    fn environment(&mut self, map: &Map, base: &str) -> Environment {
        let Some(node) = map.find("environment") else {
            return Environment::System;
        };
        let read = |text: &str| match text {
            "system" => Ok(Environment::System),
            _ => directory_with_bin(text, base).map(Environment::Directory),
        };
        self.value_of(node, "environment", read)
            .unwrap_or(Environment::System)
    }

    fn files(&mut self, map: &Map, base: &str) -> Vec<spec::File> {
        let mut files = Vec::new();
        for item in self.list(map, "files") {
            match &item.value {
                Value::Map(entries) => {
                    for (name, source) in entries {
                        let source = self.value_of(source, "files", |path| source_of(path, base));
                        let name = name.name.clone();
                        files.extend(source.map(|source| spec::File {
                            name,
                            source,
                            unpack: false,
                        }));
                    }
                }
                _ => {
                    let file = self.value_of(item, "files", |path| {
                        let source = source_of(path, base)?;
                        match Path::new(path.trim_end_matches('/')).file_name() {
                            Some(name) if name != ".." => Ok(spec::File {
                                name: name.to_string_lossy().into_owned(),
                                source,
                                unpack: false,
                            }),
                            _ => {
                                let what = format!("`{path}` has no name of its own");
                                Err((what, format!("give it one: `files: [{{data: {path}}}]`")))
                            }
                        }
                    });
                    files.extend(file);
                }
            }
        }
        files
    }

    fn outputs(&mut self, map: &Map, base: &str) -> Vec<Output> {
        let Some(node) = map.find("outputs") else {
            return Vec::new();
        };
        let mut outputs = Vec::new();
        for (from, to) in self.entries(node, "outputs") {
            let path = format!("outputs.{}", from.name);
            let to = self.value_of(to, &path, |to| {
                if let Some((scheme, _)) = to.split_once("://") {
                    let what = format!("outputs cannot go to `{scheme}://` from one machine");
                    return Err((what, "name a local directory".to_string()));
                }
                Ok(absolute(to, base))
            });
            outputs.extend(to.map(|to| Output {
                from: from.name.clone(),
                to,
            }));
        }
        outputs
    }

    fn gang(&mut self, map: &Map, framework: Framework) -> Gang {
        let mut gang = Gang {
            together: framework.together(),
            ..GANG
        };
        let Some(node) = map.find("gang") else {
            return gang;
        };
        if let Value::Scalar { .. } = node.value {
            gang.together = self.value_of(node, "gang", truth).unwrap_or(gang.together);
            return gang;
        }
        let map = self.map(node, "gang", "gang");
        let (first, most) = self.backoff(&map, "gang.backoff");
        let first = first.unwrap_or(gang.backoff.first);
        gang.backoff = Backoff {
            first,
            most: most.unwrap_or(gang.backoff.most.max(first)),
        };
        if gang.backoff.first > gang.backoff.most {
            let at = map.find("backoff").map_or(&node.at, |node| &node.at);
            let what = "the first wait is longer than the longest";
            self.refuse(at, "gang.backoff", what, "");
        }
        gang.together = self.value(&map, "together", truth).unwrap_or(gang.together);
        gang.hold = self.value(&map, "hold", span).unwrap_or(gang.hold);
        gang.retries = self.value(&map, "retries", count).unwrap_or(gang.retries);
        gang
    }

    fn deadlines(&mut self, map: &Map) -> Deadlines {
        let mut all = Deadlines::default();
        let Some(node) = map.find("deadlines") else {
            return all;
        };
        let map = self.map(node, "deadlines", "deadlines");
        all.run = self.value(&map, "run", or_none(span)).unwrap_or(all.run);
        let spans = [
            ("allocation", &mut all.allocation),
            ("launch", &mut all.launch),
            ("join", &mut all.join),
            ("start", &mut all.start),
            ("silence", &mut all.silence),
            ("grace", &mut all.grace),
            ("stop", &mut all.stop),
            ("save", &mut all.save),
        ];
        for (name, place) in spans {
            *place = self.value(&map, name, span).unwrap_or(*place);
        }
        all
    }

    fn blame(&mut self, map: &Map) -> Blame {
        let mut blame = Blame::default();
        let Some(node) = map.find("blame") else {
            return blame;
        };
        let map = self.map(node, "blame", "blame");
        blame.failures = self
            .value(&map, "failures", count)
            .unwrap_or(blame.failures);
        blame.forgive_after = self
            .value(&map, "forgive_after", span)
            .unwrap_or(blame.forgive_after);
        blame.at_most = self.value(&map, "at_most", count).unwrap_or(blame.at_most);
        blame
    }
}

/// The path seen from `base`, without `./`; a trailing slash stays, because it has a meaning in outputs.
fn absolute(path: &str, base: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let joined = PathBuf::from(base).join(path);
    let mut text = joined
        .components()
        .collect::<PathBuf>()
        .to_string_lossy()
        .into_owned();
    if path.ends_with('/') && !text.ends_with('/') {
        text.push('/');
    }
    text
}

fn directory_with_bin(text: &str, base: &str) -> Result<String, (String, String)> {
    let path = absolute(text.trim_end_matches('/'), base);
    let hint = "make one with `python3 -m venv venv`, or use `system`".to_string();
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => Err((
            format!("`{text}` is a file, not the directory of an environment"),
            hint,
        )),
        Ok(_) if !Path::new(&path).join("bin").is_dir() => Err((
            format!("`{text}` is not an environment: it has no `bin`"),
            hint,
        )),
        Ok(_) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((format!("`{text}` does not exist"), hint))
        }
        Err(error) => Err((
            format!("`{text}` cannot be looked at: {}", reason(&error)),
            String::new(),
        )),
    }
}

fn source_of(text: &str, base: &str) -> Result<String, (String, String)> {
    if let Some((scheme, _)) = text.split_once("://") {
        let what = format!("files cannot come from `{scheme}://` on one machine");
        return Err((what, "copy it here first".to_string()));
    }
    let path = absolute(text.trim_end_matches('/'), base);
    let seen_from = || format!("relative paths count from `{base}`");
    let cannot = |error: io::Error| {
        (
            format!("`{text}` cannot be read: {}", reason(&error)),
            String::new(),
        )
    };
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = if Path::new(text).is_absolute() {
                String::new()
            } else {
                seen_from()
            };
            return Err((format!("`{text}` does not exist"), hint));
        }
        Err(error) => return Err(cannot(error)),
    };
    if found.is_dir() {
        fs::read_dir(&path).map_err(cannot)?;
    } else if found.is_file() {
        File::open(&path).map_err(cannot)?;
        if text.ends_with('/') {
            return Err((
                format!("`{text}` is a file, not a directory"),
                String::new(),
            ));
        }
    } else {
        return Err((
            format!("`{text}` is neither a file nor a directory"),
            String::new(),
        ));
    }
    Ok(path)
}
