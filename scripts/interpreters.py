#!/usr/bin/env python3
"""Find the Python interpreters that examples and tests need, and download missing ones.

    scripts/interpreters.py 3.11 3.10      print `VERSION PATH` of the first version that is available

Search order: PYTHON, PATH, pyenv, earlier downloads. If no version is installed, the first one that can be downloaded is:
with uv (python-build-standalone, from GitHub), else from Maven Central (JavaCPP's CPython, x86_64 only). Downloads are kept
in ${XDG_CACHE_HOME:-~/.cache}/ydl/pythons and may be deleted at any time.
"""

import fcntl
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

UV = "0.13.7"
UV_HASHES = [
    "2c9bdc4a872b60a93c5f26c0791089ea11585a4f9d3b3c017d78eb8487505e25",  # x86_64
    "a90f5d95716ab83091f0f73a8e7ec64e557abf2a28537fcd719b2ac88e6f725a",  # aarch64
]
UV_TIMEOUT = 600

MAVEN = "https://repo1.maven.org/maven2/org/bytedeco/cpython/{0}/cpython-{0}-linux-x86_64.jar"
MAVEN_FOLDER = "org/bytedeco/cpython/linux-x86_64/"
MAVEN_TIMEOUT = 60
# Newest release of each minor version, and the SHA-256 of its jar. There is no 3.8.
MAVEN_VERSIONS = {
    "3.7": ("3.7.9-1.5.4", "0521c8dfb6c132946513e747a28f3a93bac945f83d7cda829956f69453b03f31"),
    "3.9": ("3.9.2-1.5.5", "b6401556439333ffb86d820e1e00bf24c102c85084fa2f84ea004da1f45aa687"),
    "3.10": ("3.10.8-1.5.8", "2f101b1aa06effdbda3c318c1728b13f22b571707c7b7704abaf5d19a33aa981"),
    "3.11": ("3.11.3-1.5.9", "668b42f6a8b1a9789de7d3ca54a81fefb754cd8e885554b42858bbcbc0dd497c"),
    "3.12": ("3.12.1-1.5.10", "a135fcf4dc01adebf7ea439252276fc3196db80f7e0dd3da0b61f1ec489b68bd"),
    "3.13": ("3.13.5-1.5.12", "50ad91aa0baa57f0235bb666b87d8bf2a44e215d28c250de1030502906af143b"),
}

# Resolves pyenv shims and virtual environments to the interpreter itself.
PROBE = """import importlib.util, os, sys
base = getattr(sys, "_base_executable", sys.executable)
missing = [name for name in ("venv", "ensurepip", "_ssl") if importlib.util.find_spec(name) is None]
print("%d.%d" % sys.version_info[:2], os.path.realpath(base), ",".join(missing), sep="\\t")"""


class Unavailable(Exception):
    """Error of a missing interpreter or download, with a hint."""

    def __init__(self, message, hint=""):
        super().__init__(message)
        self.hint = hint

    def report(self):
        return f"error: {self}\n\nhint: {self.hint}"


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ydl"


def log(message):
    print(f"pythons: {message}", file=sys.stderr, flush=True)


def probe(command):
    """Returns the version of an interpreter, its path and the modules it lacks for virtual environments."""
    if not shutil.which(command):
        return None
    done = subprocess.run([command, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    fields = done.stdout.rstrip("\n").split("\t")
    return fields if done.returncode == 0 and len(fields) == 3 else None


def candidates(version):
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    yield f"python{version}"
    yield from sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"))
    yield from downloaded(version)


def downloaded(version):
    return sorted(glob.glob(f"{cache()}/pythons/cpython-{version}[.-]*/bin/python{version}"))


def find(versions):
    """Returns `(version, path)` of an installed interpreter, or None."""
    chosen = os.environ.get("PYTHON")
    names = [chosen] if chosen else [*(name for version in versions for name in candidates(version)), "python3", "python"]
    incomplete = None
    for name in names:
        found = probe(name)
        if found is None or found[0] not in versions:
            continue
        version, path, missing = found
        if not missing:
            return version, path
        incomplete = incomplete or (version, path)
    if incomplete:
        version, path = incomplete
        raise Unavailable(f"`{path}` cannot create virtual environments: its modules venv, ensurepip or ssl are missing",
                          f"apt-get install python{version}-venv")
    return None


def provide(versions):
    """Returns `(version, path)` of an interpreter; downloads one if none is installed."""
    found = find(versions)
    if found:
        return found
    chosen = os.environ.get("PYTHON")
    failures = []
    for version in [] if chosen else versions:
        try:
            return version, download(version)
        except Unavailable as error:
            failures.append(str(error))
    named = ", ".join(versions)
    at = f" at `{chosen}`" if chosen else "".join(f"; {failure}" for failure in failures)
    raise Unavailable(f"no Python of version {named} found{at}", f"install one of them (apt-get install python{versions[0]} "
                      f"python{versions[0]}-venv, or pyenv install {versions[0]}), or set PYTHON=/path/to/python")


def relocatable(version):
    """Returns the prefix of an interpreter that can be copied: one of pyenv's or a download."""
    for name in candidates(version):
        found = probe(name)
        if found and found[0] == version and not found[1].startswith(("/usr/bin/", "/usr/local/bin/")):
            return Path(found[1]).parent.parent
    return Path(download(version)).parent.parent


def download(version):
    """Downloads an interpreter and returns its path."""
    pythons = cache() / "pythons"
    pythons.mkdir(parents=True, exist_ok=True)
    with open(pythons / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failures = []
        # The first look finds what another process downloaded while this one waited for the lock.
        for name, source in ("cache", None), ("uv", from_uv), ("Maven Central", from_maven):
            try:
                if source:
                    source(version, pythons)
            except (OSError, subprocess.SubprocessError, zipfile.BadZipFile, Unavailable) as error:
                failures.append(f"{name}: {describe(error)}")
                continue
            for path in downloaded(version):
                found = probe(path)
                if found and found[0] == version and not found[2]:
                    return path
        raise Unavailable(f"download of Python {version} failed ({'; '.join(failures)})", f"pyenv install {version}")


def describe(error):
    output = getattr(error, "stdout", None)
    lines = (output.decode(errors="replace") if isinstance(output, bytes) else output or "").strip().split("\n")
    return lines[-1].strip() or str(error)


def from_uv(version, pythons):
    log(f"downloading Python {version} with uv")
    variables = {**os.environ, "UV_CACHE_DIR": str(cache() / "uv-cache"), "UV_HTTP_RETRIES": "1"}
    command = [uv(), "python", "install", "--install-dir", pythons, "--no-bin", version]
    subprocess.run([str(argument) for argument in command], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   text=True, check=True, timeout=UV_TIMEOUT)


def uv():
    """Returns the path of uv; installs it from PyPI into its own virtual environment."""
    home = cache() / f"uv-{UV}"
    ready = home / "ready"
    if not ready.exists():
        found = probe(sys.executable)
        if not found or found[2]:
            raise Unavailable(f"`{sys.executable}` cannot create virtual environments", "apt-get install python3-venv")
        subprocess.run([found[1], "-I", "-m", "venv", "--clear", str(home)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, check=True)
        requirement = home / "requirements.txt"
        requirement.write_text(f"uv=={UV} {' '.join(f'--hash=sha256:{digest}' for digest in UV_HASHES)}\n")
        install = [home / "bin/python", "-m", "pip", "install", "--require-hashes", "--no-deps", "--only-binary", ":all:",
                   "--no-input", "--quiet", "--disable-pip-version-check", "-r", requirement]
        subprocess.run([str(word) for word in install], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       check=True, timeout=UV_TIMEOUT)
        ready.write_text("")
    return home / "bin/uv"


def from_maven(version, pythons):
    if version not in MAVEN_VERSIONS or platform.machine() != "x86_64":
        raise Unavailable(f"no Python {version} for {platform.machine()}")
    release, digest = MAVEN_VERSIONS[version]
    log(f"downloading Python {version} from Maven Central")
    with tempfile.TemporaryDirectory(dir=pythons, prefix="partial-") as folder:
        jar, home = Path(folder, "python.jar"), Path(folder, "python")
        with urllib.request.urlopen(MAVEN.format(release), timeout=MAVEN_TIMEOUT) as response, open(jar, "wb") as file:
            shutil.copyfileobj(response, file)
        if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            raise Unavailable(f"the hash of {MAVEN.format(release)} does not match")
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(MAVEN_FOLDER):
                    archive.extract(name, folder)
        Path(folder, MAVEN_FOLDER).rename(home)
        for program in (home / "bin").iterdir():
            program.chmod(0o755)
        # As in other installations: the interpreter looks for libraries here, too.
        for library in home.glob("lib*.so*"):
            library.replace(home / "lib" / library.name)
        target = pythons / f"cpython-{version}-maven"
        shutil.rmtree(target, ignore_errors=True)
        home.rename(target)


def main():
    if len(sys.argv) < 2:
        print("usage: scripts/interpreters.py VERSION...", file=sys.stderr)
        return 2
    try:
        print(*provide(sys.argv[1:]))
    except Unavailable as error:
        print(error.report(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
