//! Console scripts that find their interpreter in any directory.
//!
//! A script has an absolute path of its interpreter in its first line. Linux limits that line to 127 bytes and a container's path
//! is longer; so a shell starts the interpreter next to the script.

use super::plan::{EntryKind, Plan};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// Maximum size of a console script.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Directories of system programs, which exist on every node.
const SYSTEM: [&str; 3] = ["/usr/bin/", "/usr/local/bin/", "/bin/"];

/// Rewrites the scripts in `bin` of an environment with one of these original paths. Unreadable scripts are reported when they
/// are packed.
pub(super) fn rewrite(plan: &mut Plan, paths: &[String]) {
    let in_bin = |name: &&PathBuf| name.parent() == Some(Path::new("bin"));
    let names: Vec<PathBuf> = plan.entries.keys().filter(in_bin).cloned().collect();
    for name in names {
        let Some(entry) = plan.entries.get_mut(&name) else {
            continue;
        };
        if let EntryKind::File { from, stamp } = &entry.kind
            && stamp.bytes <= SCRIPT_BYTES_MAX
            && let Some(bytes) = read_script(from)
            && let Some(bytes) = relocatable(&bytes).or_else(|| through_path(&bytes, paths))
        {
            entry.kind = EntryKind::Bytes(bytes);
        }
    }
}

fn read_script(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let mut bytes = vec![0; 2];
    file.read_exact(&mut bytes).ok()?;
    if bytes != b"#!" {
        return None;
    }
    file.take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns the script with a relocatable first line; `None` if its interpreter is not a Python of an environment.
fn relocatable(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = |from: usize| {
        let rest = bytes.get(from..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some((std::str::from_utf8(&rest[..end]).ok()?, from + end + 1))
    };
    let (first, second_at) = line(0)?;
    let (arguments, rest) = match first.strip_prefix("#!")?.trim() {
        // Form that pip and uv write if the path is long or contains a space.
        "/bin/sh" => {
            let (second, third_at) = line(second_at)?;
            let (third, rest) = line(third_at)?;
            if !second.starts_with("'''exec' ") || third != "' '''" {
                return None;
            }
            ("", rest)
        }
        line => {
            let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
            let name = program.rsplit('/').next()?;
            let own = program.starts_with('/') && name.starts_with("python");
            if !own || SYSTEM.iter().any(|dir| program == format!("{dir}{name}")) {
                return None;
            }
            (arguments.trim(), second_at)
        }
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.".contains(c);
    let arguments = match arguments {
        "" => String::new(),
        text if text.chars().all(is_plain) => format!("{text} "),
        _ => return None,
    };
    let mut script = format!(
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$0\")/python\" {arguments}\"$0\" \"$@\"\n' '''\n"
    )
    .into_bytes();
    script.extend_from_slice(bytes.get(rest..)?);
    Some(script)
}

/// Returns the script with its interpreter, another program of the environment, looked up in `PATH`.
fn through_path(bytes: &[u8], paths: &[String]) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let first = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let line = first.strip_prefix("#!")?.trim();
    let inside = |path: &String| line.strip_prefix(path.as_str())?.strip_prefix("/bin/");
    let command = paths.iter().find_map(inside)?;
    let split = match command.contains(' ') {
        true => "-S ",
        false => "",
    };
    let mut script = format!("#!/usr/bin/env {split}{command}").into_bytes();
    script.extend_from_slice(bytes.get(end..)?);
    Some(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> Option<String> {
        relocatable(text.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    const HEAD: &str = "#!/bin/sh\n'''exec' \"$(dirname -- \"$0\")/python\" \"$0\" \"$@\"\n' '''\n";

    #[test]
    fn python_scripts_use_the_interpreter_next_to_them() {
        let body = "import sys\n";
        let expected = Some(format!("{HEAD}{body}"));
        assert_eq!(rewritten(&format!("#!/home/me/venv/bin/python3.11\n{body}")), expected);
        let long = format!("#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n{body}");
        assert_eq!(rewritten(&long), expected);
        let script = rewritten("#!/v/bin/python -I\nx\n").expect("a script");
        assert!(script.contains("/python\" -I \"$0\""), "{script}");
    }

    #[test]
    fn other_scripts_are_unchanged() {
        for text in [
            "#!/bin/sh\necho\necho\n",
            "#!/usr/bin/env python\nx\n",
            "#!/usr/bin/python3\nx\n",
            "#!/usr/bin/perl\n",
            "#!/v/bin/python",
            "no script\n",
            "#!/v/bin/python '; rm -rf /'\n",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
    }

    #[test]
    fn scripts_of_other_programs_use_the_path() {
        let paths = ["/opt/env".to_owned()];
        let check = |text: &str, expected: Option<&str>| {
            let script = through_path(text.as_bytes(), &paths);
            let script = script.map(|bytes| String::from_utf8(bytes).expect("text"));
            assert_eq!(script.as_deref(), expected);
        };
        check("#!/opt/env/bin/perl\nx\n", Some("#!/usr/bin/env perl\nx\n"));
        check("#!/opt/env/bin/perl -w\nx\n", Some("#!/usr/bin/env -S perl -w\nx\n"));
        check("#!/opt/envy/bin/perl\nx\n", None);
        check("#!/usr/bin/perl\nx\n", None);
    }
}
