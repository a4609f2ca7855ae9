//! Finds a program and explains why it cannot be executed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use ydl_os::reason;

/// Search path if `PATH` is not set.
pub(super) const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Linux' limit for one argument or variable (MAX_ARG_STRLEN), including its final zero.
const STRING_BYTES_MAX: usize = 128 << 10;

/// Reason why a program did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecError {
    /// Error number of the system; 0 if no call was made.
    pub errno: i32,
    pub sentence: String,
    pub hint: Option<String>,
}

impl ExecError {
    /// Creates an error without an error number: the environment of the program is not as required.
    pub fn other(sentence: String) -> ExecError {
        ExecError { errno: 0, sentence, hint: None }
    }

    fn new(errno: Errno, sentence: String) -> ExecError {
        ExecError { errno: errno.raw_os_error(), sentence, hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> ExecError {
        ExecError { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.sentence)
    }
}

/// Changes to the program's working directory.
pub(crate) fn enter(cwd: &str) -> Result<(), ExecError> {
    std::env::set_current_dir(cwd).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        ExecError::new(errno, format!("cannot run in the directory `{cwd}`: {}", reason(&error)))
    })
}

/// Resolves `program`: a path if it contains a slash, else looked up in the `PATH` of its own environment. Relative
/// paths start at the current directory.
pub(crate) fn find(program: &str, env: &BTreeMap<String, String>) -> Result<String, ExecError> {
    if program.is_empty() {
        let sentence = "the program's name is empty".to_owned();
        return Err(ExecError::new(Errno::NOENT, sentence));
    }
    if program.contains('/') {
        return Ok(program.to_owned());
    }
    let path = env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
    let mut passed_over = None;
    for dir in path.split(':') {
        let candidate = format!("{}/{program}", if dir.is_empty() { "." } else { dir });
        let is_file = std::fs::metadata(&candidate).is_ok_and(|metadata| metadata.is_file());
        if is_file && access(&candidate, Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        }
        if is_file && passed_over.is_none() {
            passed_over = Some(candidate);
        }
    }
    Err(match passed_over {
        Some(candidate) => explain(&candidate, Errno::ACCESS),
        None => {
            let sentence = format!("program `{program}` not found in `PATH` (`{path}`)");
            ExecError::new(Errno::NOENT, sentence)
        }
    })
}

/// Rejects arguments and variables that exceed the kernel's limits, naming the one that does.
pub(crate) fn check_lengths(
    argv: &[String],
    env: &BTreeMap<String, String>,
) -> Result<(), ExecError> {
    let too_long = |what: String, length: usize| {
        let sentence =
            format!("{what} has {length} bytes, more than the {STRING_BYTES_MAX} Linux allows");
        Err(ExecError::new(Errno::TOOBIG, sentence).hint("pass it in a file instead"))
    };
    for (at, argument) in argv.iter().enumerate() {
        if argument.len() >= STRING_BYTES_MAX {
            return too_long(format!("argument {at} of `{}`", argv[0]), argument.len());
        }
    }
    for (name, value) in env {
        let length = name.len() + 1 + value.len();
        if length >= STRING_BYTES_MAX {
            return too_long(format!("the environment variable `{name}`"), length);
        }
    }
    Ok(())
}

/// Explains why the kernel returned `errno` when asked to execute `path`.
pub(crate) fn explain(path: &str, errno: Errno) -> ExecError {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return ExecError::new(errno, format!("the program `{path}` does not exist"));
        }
        Err(error) => {
            let sentence = format!("cannot execute `{path}`: {}", reason(&error));
            return ExecError::new(errno, sentence);
        }
    };
    if metadata.is_dir() {
        return ExecError::new(errno, format!("`{path}` is a directory, not a program"));
    }
    let explained = match errno {
        Errno::ACCESS => not_executable(path, &metadata),
        Errno::NOENT => missing_interpreter(path),
        Errno::NOEXEC => Some(wrong_format(path)),
        Errno::TOOBIG => Some(ExecError::new(
            errno,
            format!("the arguments and the environment of `{path}` are too long together"),
        )),
        Errno::TXTBSY => Some(ExecError::new(errno, format!("`{path}` is still being written"))),
        _ => None,
    };
    explained.unwrap_or_else(|| {
        let sentence = format!("cannot execute `{path}`: {}", reason(&errno.into()));
        ExecError::new(errno, sentence)
    })
}

fn not_executable(path: &str, metadata: &Metadata) -> Option<ExecError> {
    let mode = metadata.permissions().mode() & 0o7777;
    if access(path, Access::EXEC_OK).is_err() {
        let sentence = format!("`{path}` is not executable: its mode is `{mode:04o}`");
        return Some(
            ExecError::new(Errno::ACCESS, sentence)
                .hint(format!("`chmod +x {path}`, or name its interpreter first")),
        );
    }
    if let Some(interpreter) = shebang(path) {
        let sentence =
            format!("the script `{path}` asks for `{interpreter}`, which is not executable");
        return Some(ExecError::new(Errno::ACCESS, sentence));
    }
    let sentence = format!("`{path}` may not be executed though its mode is `{mode:04o}`");
    Some(ExecError::new(Errno::ACCESS, sentence).hint("its file system may be mounted `noexec`"))
}

/// Explains ENOENT for an existing file: its interpreter or loader is missing.
fn missing_interpreter(path: &str) -> Option<ExecError> {
    if let Some(interpreter) = shebang(path) {
        let printable = interpreter.replace('\r', "\\r");
        let sentence = format!(
            "the script `{path}` asks for the interpreter `{printable}`, which does not exist"
        );
        let error = ExecError::new(Errno::NOENT, sentence);
        return Some(if printable == interpreter {
            error
        } else {
            error.hint(format!("its lines end as on Windows; try `sed -i 's/\\r$//' {path}`"))
        });
    }
    let loader = elf_loader(path).ok().flatten()?;
    let sentence = format!("`{path}` needs the loader `{loader}`, which does not exist");
    let hint = "it was built for another C library; use a build for this system";
    Some(ExecError::new(Errno::NOENT, sentence).hint(hint))
}

fn wrong_format(path: &str) -> ExecError {
    let machines = (elf_machine(path), elf_machine("/proc/self/exe"));
    if let (Ok(Some(program)), Ok(Some(host))) = machines
        && program != host
    {
        let (program, host) = (machine_name(program), machine_name(host));
        let sentence = format!("`{path}` is built for `{program}`, and this machine is `{host}`");
        return ExecError::new(Errno::NOEXEC, sentence);
    }
    let sentence = format!(
        "`{path}` is neither an executable of this machine nor a script that begins with `#!`"
    );
    ExecError::new(Errno::NOEXEC, sentence)
        .hint("name its interpreter first, or begin it with a line such as `#!/bin/sh`")
}

/// Returns the interpreter in a script's first line.
fn shebang(path: &str) -> Option<String> {
    let mut first = Vec::new();
    // The limit of the kernel.
    File::open(path).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let parts = line.split(|&byte| byte == b' ' || byte == b'\t');
    let interpreter = parts.into_iter().find(|part| !part.is_empty())?;
    Some(String::from_utf8_lossy(interpreter).into_owned())
}

fn elf_head(file: &mut File) -> io::Result<Option<[u8; 64]>> {
    let mut head = [0; 64];
    match file.read_exact(&mut head) {
        Ok(()) => Ok(head.starts_with(b"\x7fELF").then_some(head)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn elf_machine(path: &str) -> io::Result<Option<u16>> {
    let head = elf_head(&mut File::open(path)?)?;
    Ok(head.map(|head| match head[5] {
        2 => u16::from_be_bytes([head[18], head[19]]),
        _ => u16::from_le_bytes([head[18], head[19]]),
    }))
}

/// Returns the loader of a dynamically linked program. Reads only 64-bit little-endian files, the format of this
/// machine.
fn elf_loader(path: &str) -> io::Result<Option<String>> {
    const INTERP: u32 = 3;
    let mut file = File::open(path)?;
    let Some(head) = elf_head(&mut file)?.filter(|head| head[4] == 2 && head[5] == 1) else {
        return Ok(None);
    };
    let read_u64 = |bytes: &[u8], at: usize| {
        bytes[at..at + 8].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let (table, count) = (read_u64(&head, 32), u16::from_le_bytes([head[56], head[57]]));
    file.seek(SeekFrom::Start(table))?;
    for _ in 0..count.min(64) {
        let mut entry = [0; 56];
        file.read_exact(&mut entry)?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == INTERP {
            let mut name = Vec::new();
            file.seek(SeekFrom::Start(read_u64(&entry, 8)))?;
            file.take(read_u64(&entry, 32).min(4096)).read_to_end(&mut name)?;
            name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
            return Ok(Some(String::from_utf8_lossy(&name).into_owned()));
        }
    }
    Ok(None)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".into(),
        21 => "ppc64".into(),
        22 => "s390x".into(),
        40 => "arm".into(),
        62 => "x86_64".into(),
        183 => "aarch64".into(),
        243 => "riscv".into(),
        258 => "loongarch".into(),
        other => format!("machine {other}"),
    }
}
