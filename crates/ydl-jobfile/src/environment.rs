//! Reads and prints the environment of a job.

use super::{
    fields::{Map, Reader},
    files::{absolute, archives_hint, is_archive, is_url, last_of, source_of},
    formats::{Choice, Context},
    image,
    printer::{YamlValue, text},
    tree::{Node, Value},
    units::Rejection,
};
use std::{fs, io, path::Path};
use ydl_core::{
    JobSpecBuilder,
    spec::{Environment, Interpreter, PackedEnvironment},
};
use ydl_os::reason;

/// Source of the interpreter of a packed environment.
const INTERPRETER: Choice<Interpreter> = Choice(&[
    ("auto", Interpreter::Auto),
    ("bundle", Interpreter::Bundle),
    ("node", Interpreter::Node),
]);

impl Reader {
    pub(crate) fn environment(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        if let Some(node) = map.find("environment") {
            job.environment = self.environment_of(node);
        }
    }

    fn environment_of(&mut self, node: &Node) -> Environment {
        let context = self.context.clone();
        let read = |text: &str| environment(text, &context);
        let Value::Map(_) = &node.value else {
            let read = self.value_of(node, "environment", read);
            return read.unwrap_or(Environment::System);
        };
        let map = self.map(node, "environment", "environment");
        if let Some(image) = self.image(node, &map) {
            return image;
        }
        let Some(path) = map.find("path") else {
            if !self.reported.iter().any(|key| key.starts_with("environment.")) {
                let what = "missing `path` or image";
                let hint = "set `path`, or an image: `{docker: registry/image:tag}`";
                self.reject(&node.at, "environment", what, hint);
            }
            return Environment::System;
        };
        let mut found = self.value_of(path, &map.key("path"), read);
        let mut interpreter = None;
        self.read(&map, "interpreter", &INTERPRETER, &mut interpreter);
        match (&mut found, interpreter) {
            (_, None) | (None, _) => {}
            (
                Some(
                    Environment::Directory(from)
                    | Environment::Requirements(from)
                    | Environment::Pex(from),
                ),
                Some(interpreter),
            ) => from.interpreter = interpreter,
            (
                Some(Environment::System | Environment::Archive(_) | Environment::Image(_)),
                Some(_),
            ) => {
                let what = "`interpreter` applies to packed environments only";
                self.reject(&node.at, &map.key("interpreter"), what, "remove it");
            }
        }
        found.unwrap_or(Environment::System)
    }
}

/// Parses an environment given outside a job file, relative to the working directory.
pub fn named_environment(text: &str, interpreter: &str) -> Result<Environment, Rejection> {
    let here = std::env::current_dir().unwrap_or_default();
    let context = Context { base: here.to_string_lossy().into_owned(), cluster: true };
    let interpreter = INTERPRETER.parse(interpreter)?;
    let mut found = environment(text, &context)?;
    match &mut found {
        Environment::Directory(from) | Environment::Requirements(from) | Environment::Pex(from) => {
            from.interpreter = interpreter;
            Ok(found)
        }
        Environment::System | Environment::Archive(_) | Environment::Image(_) => Err((
            format!("`{text}` cannot be packed"),
            "use a virtual environment, a `requirements.txt`, a `pyproject.toml` or a `.pex`"
                .into(),
        )),
    }
}

/// Determines the type of an environment by its name and content.
fn environment(text: &str, context: &Context) -> Result<Environment, Rejection> {
    let packed = |path: String| PackedEnvironment { path, interpreter: Interpreter::Auto };
    let file = |text: &str| source_of(text, context).map(packed);
    if let Some(image) = image::named(text, context.cluster) {
        return image;
    }
    match text {
        "system" => Ok(Environment::System),
        _ if is_url(text) || is_archive(text) => archive(text, context),
        _ if text.ends_with(".txt") || last_of(text) == "pyproject.toml" => {
            file(text).map(Environment::Requirements)
        }
        _ if text.ends_with(".pex") => file(text).map(Environment::Pex),
        _ => directory_with_bin(text, &context.base).map(packed).map(Environment::Directory),
    }
}

fn archive(text: &str, context: &Context) -> Result<Environment, Rejection> {
    if !context.cluster {
        let what = format!("archive `{text}` is supported on a cluster only");
        return Err((what, "unpack it, and use the directory that contains `bin`".into()));
    }
    if !is_archive(text) {
        let what = format!("`{text}` is not a supported archive");
        return Err((what, archives_hint().into()));
    }
    let source = source_of(text, context)?;
    if !is_url(&source) && Path::new(&source).is_dir() {
        let path = directory_with_bin(text, &context.base)?;
        let interpreter = Interpreter::Auto;
        return Ok(Environment::Directory(PackedEnvironment { path, interpreter }));
    }
    Ok(Environment::Archive(source))
}

/// Checks that a virtual environment has an interpreter, and returns reason and hint if not. Without this check tasks
/// would silently run another interpreter.
fn interpreter(venv: &Path) -> Result<(), (String, &'static str)> {
    let create_again = "create it again, with an installed interpreter";
    let mut names = ["bin/python", "bin/python3"].into_iter();
    let is_there = |name: &&str| venv.join(name).symlink_metadata().is_ok();
    let Some(name) = names.find(is_there) else {
        return Err(("it has no `bin/python`".to_owned(), create_again));
    };
    let link = venv.join(name);
    fs::metadata(&link).map(drop).map_err(|error| {
        let target = fs::read_link(&link).unwrap_or(link);
        let interpreter = format!("its interpreter `{}`", target.display());
        match error.kind() {
            io::ErrorKind::NotFound => (format!("{interpreter} does not exist"), create_again),
            _ => (
                format!("{interpreter} cannot be accessed: {}", reason(&error)),
                "ask its owner for access, or use another interpreter",
            ),
        }
    })
}

fn directory_with_bin(text: &str, base: &str) -> Result<String, Rejection> {
    let path = absolute(text.trim_end_matches('/'), base);
    let hint = "create one with `python3 -m venv venv`, or use `system`".to_string();
    let inside = Path::new(&path);
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => {
            Err((format!("`{text}` is a file, not the directory of an environment"), hint))
        }
        Ok(_) if !inside.join("bin").is_dir() => {
            let mut lists = ["pyproject.toml", "requirements.txt"].into_iter();
            let list = lists.find(|name| inside.join(name).is_file());
            let text = text.trim_end_matches('/');
            Err((
                format!("`{text}` is not an environment: it has no `bin`"),
                list.map_or(hint, |name| {
                    format!("to build one from its requirements, use `{text}/{name}`")
                }),
            ))
        }
        Ok(_) if inside.join("pyvenv.cfg").is_file() => match interpreter(inside) {
            Ok(()) => Ok(path),
            Err((why, hint)) => Err((
                format!("the virtual environment `{text}` cannot be used: {why}"),
                hint.to_owned(),
            )),
        },
        Ok(_) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((format!("`{text}` does not exist"), hint))
        }
        Err(error) => {
            Err((format!("`{text}` cannot be accessed: {}", reason(&error)), String::new()))
        }
    }
}

/// Prints an environment.
pub(crate) fn print(environment: &Environment) -> YamlValue {
    YamlValue::Line(match environment {
        Environment::System => "system".to_string(),
        Environment::Archive(path) => text(path),
        Environment::Directory(from) | Environment::Requirements(from) | Environment::Pex(from) => {
            packed(from)
        }
        Environment::Image(image) => return image::print(image),
    })
}

fn packed(from: &PackedEnvironment) -> String {
    match from.interpreter {
        Interpreter::Auto => text(&from.path),
        other => {
            let word = INTERPRETER.word(other);
            format!("{{path: {}, interpreter: {word}}}", text(&from.path))
        }
    }
}
