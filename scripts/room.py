"""Whether there is room on the disks for `make test`, asked before anything is begun.

A disk that is full in the middle shows as DataNodes that take nothing and jobs that fail for
reasons of their own: riddles half an hour later.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

GIB = 1 << 30

# What one whole run from empty caches was seen to take, rounded up.
BUILD, ENVIRONMENTS, CLUSTERS = 10 * GIB, 16 * GIB, 12 * GIB


def taken(place):
    if not place.exists():
        return 0
    said = subprocess.run(["du", "-sk", str(place)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return int(said.stdout.split()[0]) * 1024 if said.stdout else 0


def disk(place):
    """The disk of a place that may not be there yet."""
    while not place.exists():
        place = place.parent
    return os.stat(place).st_dev, place


def missing(target):
    """What is said of disks with too little room, None where there is enough."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ydl"
    wants = [(target, BUILD), (cache, ENVIRONMENTS), (Path(tempfile.gettempdir()), CLUSTERS)]
    # What is there already is counted, which takes seconds, only where it decides.
    if too_little(wants):
        wants = [(target, BUILD - taken(target)), (cache, ENVIRONMENTS - taken(cache)), wants[2]]
    return too_little(wants)


def too_little(wants):
    disks = {}
    for place, wanted in wants:
        number, there = disk(place)
        sum_of, places = disks.get(number, (0, []))
        disks[number] = sum_of + max(wanted, 0), [*places, str(there)]
    for wanted, places in disks.values():
        free = shutil.disk_usage(places[0]).free
        if free < wanted:
            return (f"error: {free / GIB:.0f} GiB are free on the disk of {' and '.join(dict.fromkeys(places))}, and `make test` "
                    f"may take {wanted / GIB:.0f} GiB more\n\nhint: make room, or move the build (CARGO_TARGET_DIR), "
                    "the environments (XDG_CACHE_HOME) or the clusters (TMPDIR) to another disk")
    return None
