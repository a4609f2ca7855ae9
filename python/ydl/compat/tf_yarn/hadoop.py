"""Hadoop's classes, for programs that reach HDFS through libhdfs: TensorFlow by `hdfs://`, pyarrow. ydl itself needs none."""

import glob
import logging
import os
import shutil
import subprocess
from typing import Dict, List, Mapping

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
CHARACTERS_MAX = 100_000
"""Linux starts no program with a variable of 128 KiB."""


def classes(env: Mapping[str, str]) -> Dict[str, str]:
    """`CLASSPATH`, where nobody has set it and this node has a `hadoop` that tells: without it libhdfs starts a JVM that knows
    nothing of HDFS, and says no more than `Unknown error 255`."""
    if env.get("CLASSPATH"):
        return {}
    homes = [env[name] for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME", "HADOOP_HDFS_HOME") if env.get(name)]
    places = [os.path.join(home, "bin") for home in homes] + [env.get("PATH", os.defpath)]
    hadoop = shutil.which("hadoop", path=os.pathsep.join(places))
    if hadoop is None:
        return {}
    try:
        # With `--glob` it would start a JVM.
        done = subprocess.run(
            [hadoop, "classpath"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(env), timeout=ANSWER_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as failure:
        logger.warning("libhdfs will find no classes, should it be used: %s", failure)
        return {}
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    told = next((line.strip() for line in reversed(lines) if line.strip()), "")
    whole = os.pathsep.join(part for entry in told.split(os.pathsep) for part in _expanded(entry))
    return {"CLASSPATH": told if len(whole) > CHARACTERS_MAX else whole} if told else {}


def _expanded(entry: str) -> List[str]:
    """What an entry means to a JVM that is started by libhdfs, which knows no wildcards before Hadoop 3."""
    return sorted(glob.glob(entry + ".jar")) if entry.endswith("/*") else [entry] if entry else []
