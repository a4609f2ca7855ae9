"""Class path of Hadoop for programs that use libhdfs: TensorFlow with `hdfs://`, pyarrow. ydl itself needs none."""

import glob
import logging
import os
import shutil
import subprocess
from typing import Dict, List, Mapping

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 20.0
MAX_CHARACTERS = 100_000
"""Linux limits a variable to 128 KiB."""


def hadoop_class_path(env: Mapping[str, str]) -> Dict[str, str]:
    """Returns `CLASSPATH` if it is not set and this node has a `hadoop` command. Without it libhdfs only reports
    `Unknown error 255`."""
    if env.get("CLASSPATH"):
        return {}
    homes = [env[name] for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME", "HADOOP_HDFS_HOME") if env.get(name)]
    folders = [os.path.join(home, "bin") for home in homes] + [env.get("PATH", os.defpath)]
    hadoop = shutil.which("hadoop", path=os.pathsep.join(folders))
    if hadoop is None:
        return {}
    try:
        # `--glob` would start a JVM.
        done = subprocess.run(
            [hadoop, "classpath"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(env), timeout=TIMEOUT_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as failure:
        logger.warning("cannot determine the class path for libhdfs: %s", failure)
        return {}
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    class_path = next((line.strip() for line in reversed(lines) if line.strip()), "")
    expanded = os.pathsep.join(part for entry in class_path.split(os.pathsep) for part in _expand(entry))
    return {"CLASSPATH": class_path if len(expanded) > MAX_CHARACTERS else expanded} if class_path else {}


def _expand(entry: str) -> List[str]:
    """Expands wildcards, which libhdfs does not support before Hadoop 3."""
    return sorted(glob.glob(entry + ".jar")) if entry.endswith("/*") else [entry] if entry else []
