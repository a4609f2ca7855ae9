"""`check_hadoop_env`: runs `ydl doctor` and reports its results as tf-yarn does, with hints.

No JVM is needed, so JAVA_HOME and similar variables are not checked.
"""

import argparse
import logging
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from ydl import Error

logger = logging.getLogger("tf_yarn.bin.check_hadoop_env")

LOG = "check_hadoop_env.log"
# tf-yarn's three results, each with the checks of `doctor` that determine it.
RESULTS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("check_env", ("configuration", "ticket", "ResourceManager", "nodes", "queue", "label")),
    ("check_local_hadoop", ("NameNode", "staging")),
    ("remote_check", ("job",)),
)


def run_doctor(arguments: List[str]) -> List[Dict[str, Any]]:
    """Returns the results of `ydl doctor`, one object per check."""
    from ydl import program

    return program.call(["doctor", *arguments], accepted_codes=tuple(range(256)))


def results(found: List[Dict[str, Any]]) -> List[Tuple[str, bool, List[Dict[str, Any]]]]:
    """Returns tf-yarn's results, each with its value and its checks."""
    checks = [record for record in found if "check" in record]
    rows = []
    for name, names in RESULTS:
        own = [check for check in checks if check["check"] in names]
        if own:
            rows.append((name, all(check.get("state") in ("ok", "warning") for check in own), own))
    return rows


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="check_hadoop_env", description="Check whether jobs can run on the cluster.")
    parser.add_argument("--queue", help="queue of the jobs")
    parser.add_argument("--label", help="node label of the jobs")
    parser.add_argument("--cluster", choices=["yarn", "local"], help="cluster type")
    parser.add_argument("--no-job", action="store_true", help="skip the test job")
    args = parser.parse_args(arguments)
    path = os.path.abspath(LOG)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s:%(name)s:%(message)s")
    log_file = logging.FileHandler(path, mode="w", encoding="utf-8")
    log_file.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger.addHandler(log_file)
    try:
        logger.info("results will be written in %s", path)
        values = {name: getattr(args, name) for name in ("queue", "label", "cluster")}
        options = [word for name, value in values.items() if value for word in ("--" + name, value)]
        try:
            found = run_doctor(options + (["--no-job"] if args.no_job else []))
        except Error as failure:
            logger.error("%s%s", failure.message, "; {}".format(failure.hint) if failure.hint else "")
            found = []
        ok = True
        for name, passed, checks in results(found):
            for check in checks:
                hint = "; {}".format(check["hint"]) if check.get("hint") and check.get("state") != "ok" else ""
                logger.info("%s: %s: %s%s", check["check"], check.get("state"), check.get("message"), hint)
            logger.info("%s: %s", name, passed)
            ok = ok and passed
        result: Dict[str, Any] = next((record["result"] for record in found if "result" in record), {})
        ok = ok and bool(result.get("ok"))
        logger.info("Hadoop setup: %s", "OK" if ok else "KO")
        return 0 if ok else 1
    finally:
        logger.removeHandler(log_file)
        log_file.close()


if __name__ == "__main__":
    sys.exit(main())
