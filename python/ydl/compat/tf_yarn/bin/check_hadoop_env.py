"""`check_hadoop_env`: whether a job could run, in tf-yarn's words. `ydl doctor` does the work and says what to do.

No JVM is needed, so JAVA_HOME and its like are not asked for.
"""

import argparse
import logging
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from ydl import Error

logger = logging.getLogger("tf_yarn.bin.check_hadoop_env")

LOG = "check_hadoop_env.log"
# tf-yarn's three questions, each by the checks that answer it. All must be well, and what `doctor` itself concludes.
QUESTIONS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("check_env", ("configuration", "ticket", "ResourceManager", "nodes", "queue", "label")),
    ("check_local_hadoop", ("NameNode", "staging")),
    ("remote_check", ("job",)),
)


def diagnosis(words: List[str]) -> List[Dict[str, Any]]:
    """What `ydl doctor` says, an object a check."""
    from ydl import program

    return program.call(["doctor", *words], fine=tuple(range(256)))


def answers(told: List[Dict[str, Any]]) -> List[Tuple[str, bool, List[Dict[str, Any]]]]:
    """tf-yarn's questions, each with its answer and what was found."""
    checks = [one for one in told if "check" in one]
    rows = []
    for question, names in QUESTIONS:
        own = [one for one in checks if one["check"] in names]
        if own:
            rows.append((question, all(one.get("state") in ("ok", "warning") for one in own), own))
    return rows


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="check_hadoop_env", description="Check whether jobs can run on the cluster.")
    parser.add_argument("--queue", help="the queue that jobs will go to")
    parser.add_argument("--label", help="the label of the nodes that jobs will ask for")
    parser.add_argument("--cluster", choices=["yarn", "local"], help="where jobs run")
    parser.add_argument("--no-job", action="store_true", help="leave out the job that is run to try everything")
    args = parser.parse_args(words)
    path = os.path.abspath(LOG)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s:%(name)s:%(message)s")
    written = logging.FileHandler(path, mode="w", encoding="utf-8")
    written.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger.addHandler(written)
    try:
        logger.info("results will be written in %s", path)
        given = {name: getattr(args, name) for name in ("queue", "label", "cluster")}
        options = [word for name, value in given.items() if value for word in ("--" + name, value)]
        try:
            told = diagnosis(options + (["--no-job"] if args.no_job else []))
        except Error as failure:
            logger.error("%s%s", failure.message, "; {}".format(failure.hint) if failure.hint else "")
            told = []
        well = True
        for question, fine, found in answers(told):
            for one in found:
                hint = "; {}".format(one["hint"]) if one.get("hint") and one.get("state") != "ok" else ""
                logger.info("%s: %s: %s%s", one["check"], one.get("state"), one.get("found") or one.get("because"), hint)
            logger.info("%s: %s", question, fine)
            well = well and fine
        result: Dict[str, Any] = next((one["result"] for one in told if "result" in one), {})
        well = well and bool(result.get("ok"))
        logger.info("Hadoop setup: %s", "OK" if well else "KO")
        return 0 if well else 1
    finally:
        logger.removeHandler(written)
        written.close()


if __name__ == "__main__":
    sys.exit(main())
