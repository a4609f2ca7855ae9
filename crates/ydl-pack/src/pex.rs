//! Environment from a pex: its wheels are installed into a new virtual environment.

use super::{
    build::{Build, BuildSlot, find_program},
    plan::read_error,
    stable_file::FileStamp,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use ydl_os::report::Report;

/// Highest minor version of Python that is searched.
const MINOR_MAX: u32 = 20;

/// Prints the minor versions of Python 3 that the wheels of a pex require, or nothing if they work with any.
const VERSIONS: &str = "import json, re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as pex:
    info = json.loads(pex.read('PEX-INFO'))
tags = [re.findall(r'-cp3(\\d+)-(?!abi3)', name) for name in info.get('distributions', {})]
minors = sorted({int(minor) for found in tags for minor in found})
rules = ' '.join(info.get('interpreter_constraints') or [])
print(*minors or re.findall(r'==3\\.(\\d+)', rules))
";

/// Installs the wheels of a pex into the environment that runs this script. Files must stay inside it and within limits.
const UNPACK: &str = "import configparser, os, sys, zipfile
site = next(path for path in sys.path if path.endswith('site-packages'))
prefix, limit = sys.prefix, 64 << 30
def target_of(name):
    parts = name.split('/')
    if parts[0] in ('.bootstrap', '__pex__', '__main__.py', 'PEX-INFO'):
        return None
    base = site
    if parts[0] == '.deps':
        parts = parts[2:]
        if parts and parts[0] == '.prefix':
            base, parts = prefix, parts[1:]
        if not parts or parts[0] == '.layout.json' or parts[0].endswith('.pex-info'):
            return None
    if not all(part not in ('', '.', '..') and '\\0' not in part for part in parts):
        sys.exit('the path `%s` in the pex escapes its directory' % name)
    path = os.path.join(base, *parts)
    if os.path.islink(path) or path == os.path.join(prefix, 'pyvenv.cfg'):
        sys.exit('`%s` in the pex would replace the interpreter' % name)
    return path
def write(path, data, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(data)
    os.chmod(path, mode)
def script(path, data):
    head, _, rest = data.partition(b'\\n')
    if head.startswith(b'#!') and b'python' in head:
        data = b'#!' + os.fsencode(os.path.join(prefix, 'bin', 'python')) + b'\\n' + rest
    write(path, data, 0o755)
names = []
with zipfile.ZipFile(sys.argv[1]) as pex:
    for entry in pex.infolist():
        path = None if entry.is_dir() else target_of(entry.filename)
        if path is None:
            continue
        limit -= entry.file_size
        if limit < 0:
            sys.exit('the pex contains more than 64 GiB')
        if os.path.dirname(path) == os.path.join(prefix, 'bin'):
            script(path, pex.read(entry))
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = 0o755 if entry.external_attr >> 16 & 0o100 else 0o644
        with pex.open(entry) as data, open(path, 'wb') as file:
            while True:
                some = data.read(1 << 20)
                if not some:
                    break
                file.write(some)
        os.chmod(path, mode)
        if path.endswith('.dist-info/entry_points.txt'):
            names.append(path)
for path in names:
    points = configparser.ConfigParser(delimiters=('=',), strict=False, interpolation=None)
    points.optionxform = str
    points.read(path, encoding='utf-8')
    if points.has_section('console_scripts'):
        for name, point in points.items('console_scripts'):
            target = os.path.join(prefix, 'bin', os.path.basename(name))
            module, _, attribute = point.split('[')[0].strip().partition(':')
            if not os.path.exists(target) and attribute:
                code = 'import sys\\nfrom %s import %s as run\\nsys.exit(%s())\\n'
                first = attribute.split('.')[0]
                call = 'run' + attribute[len(first):]
                text = '#!python\\n' + code % (module, first, call)
                script(target, text.encode())
";

/// Returns the environment of a pex, built unless it is cached.
pub(super) fn get_or_build(path: &Path, notify: &dyn Fn(String)) -> Result<PathBuf, Report> {
    let path = path.canonicalize().map_err(|error| read_error(path, &error))?;
    let metadata = fs::metadata(&path).map_err(|error| read_error(&path, &error))?;
    let mut key = FileStamp::of(&metadata).fingerprint().to_vec();
    key.extend(path.to_string_lossy().as_bytes());
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let slot = BuildSlot::of(&name, &key)?;
    slot.get_or_build(notify, |build| {
        notify(format!("building an environment from `{}`", path.display()));
        let python = interpreter(&path)?;
        let mut venv = Command::new(&python);
        venv.args(["-I", "-m", "venv", "--without-pip"]).arg(&build.dir);
        build.run("python -m venv", &mut venv)?;
        unpack(build, &path)
    })
}

fn unpack(build: &Build, path: &Path) -> Result<(), Report> {
    let mut unpack = Command::new(build.dir.join("bin/python"));
    unpack.args(["-I", "-X", "utf8", "-c", UNPACK]).arg(path);
    build.run("unpacking the pex", &mut unpack)
}

/// Finds an interpreter on this machine for which the wheels are built.
fn interpreter(path: &Path) -> Result<PathBuf, Report> {
    let any = find_program("python3").or_else(|| find_program("python"));
    let Some(any) = any else {
        let what = format!("no `python3` found to read `{}`", path.display());
        return Err(Report::bad_input(what).hint("install one"));
    };
    let mut command = Command::new(&any);
    command.args(["-I", "-X", "utf8", "-c", VERSIONS]).arg(path);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success()).ok_or_else(|| {
        let what = format!("`{}` is not a pex: it has no `PEX-INFO`", path.display());
        let hint = "build one with `pex -r requirements.txt -o job.pex`, in one file";
        Report::bad_input(what).hint(hint)
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let minors: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if minors.is_empty() {
        return Ok(any);
    }
    for minor in minors.iter().filter(|minor| **minor <= MINOR_MAX) {
        let python = find_program(&format!("python3.{minor}"));
        if let Some(python) = python.filter(|python| starts(python)) {
            return Ok(python);
        }
    }
    let minors: Vec<_> = minors.iter().map(|minor| format!("3.{minor}")).collect();
    let what = format!(
        "`{}` is built for Python {}, which is not installed on this machine",
        path.display(),
        minors.join(" or ")
    );
    Err(Report::bad_input(what).hint("install it, or build the pex with an installed Python"))
}

/// Returns whether an interpreter starts: a wrapper script may select a version that is not installed.
fn starts(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-I", "-c", ""]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pex_does_not_write_through_links_of_its_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let (prefix, outside) = (dir.path().join("env"), dir.path().join("outside"));
        fs::create_dir_all(prefix.join("bin")).expect("a directory");
        fs::create_dir_all(prefix.join("lib/site-packages")).expect("a directory");
        fs::write(&outside, "the interpreter").expect("a file");
        std::os::unix::fs::symlink(&outside, prefix.join("bin/python")).expect("a link");
        let python = find_program("python3").expect("a Python");
        // Redirects the script to another environment, so that a failing test does not damage the interpreter's own.
        let redirect = "import sys\nprefix = sys.argv.pop()\nsys.prefix = prefix\n\
                       sys.path.insert(0, prefix + '/lib/site-packages')\n";
        let unpack = |name: &str| {
            let pex = dir.path().join("a.pex");
            let zip = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as pex:\n    \
                       pex.writestr(sys.argv[2], 'evil')\n";
            let run = |code: &str, argument: &Path| {
                let mut command = Command::new(&python);
                command.args(["-I", "-c", code]).arg(&pex).arg(argument);
                command.output().expect("a Python")
            };
            assert!(run(zip, Path::new(name)).status.success());
            run(&format!("{redirect}{UNPACK}"), &prefix)
        };
        for name in [".deps/a.whl/.prefix/bin/python", ".deps/a.whl/.prefix/pyvenv.cfg"] {
            let output = unpack(name);
            assert!(!output.status.success(), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(stderr.contains("would replace the interpreter"), "{stderr}");
        }
        assert_eq!(fs::read_to_string(&outside).expect("a file"), "the interpreter");
        let output = unpack(".deps/a.whl/a.py");
        assert!(output.status.success(), "{output:?}");
        assert!(prefix.join("lib/site-packages/a.py").is_file());
    }
}
