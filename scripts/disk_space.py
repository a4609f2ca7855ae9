"""Checks before `make test` that the disks have enough free space.

A disk that fills up during the run fails in misleading ways: DataNodes reject blocks and jobs fail with unrelated errors.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

GIB = 1 << 30

# Measured for a complete run from empty caches, rounded up.
BUILD, ENVIRONMENTS, CLUSTERS = 10 * GIB, 16 * GIB, 12 * GIB


def used(path):
    if not path.exists():
        return 0
    output = subprocess.run(["du", "-sk", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return int(output.split()[0]) * 1024 if output else 0


def disk(path):
    """Returns the device of a path and its nearest existing ancestor."""
    while not path.exists():
        path = path.parent
    return os.stat(path).st_dev, path


def check(target):
    """Returns an error message if a disk has too little free space, else None."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ydl"
    required = [(target, BUILD), (cache, ENVIRONMENTS), (Path(tempfile.gettempdir()), CLUSTERS)]
    # Subtracting existing files takes seconds, so only if it can change the result.
    if shortage(required):
        required = [(target, BUILD - used(target)), (cache, ENVIRONMENTS - used(cache)), required[2]]
    return shortage(required)


def shortage(required):
    disks = {}
    for path, size in required:
        device, existing = disk(path)
        total, paths = disks.get(device, (0, []))
        disks[device] = total + max(size, 0), [*paths, str(existing)]
    for size, paths in disks.values():
        free = shutil.disk_usage(paths[0]).free
        if free < size:
            return (f"error: not enough disk space for {' and '.join(dict.fromkeys(paths))}: {free / GIB:.0f} GiB free, `make test` "
                    f"may need {size / GIB:.0f} GiB more\n\nhint: free some space, or move the build (CARGO_TARGET_DIR), "
                    "the environments (XDG_CACHE_HOME) or the clusters (TMPDIR) to another disk")
    return None
