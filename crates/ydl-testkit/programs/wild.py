"""Reports what MLflow would refuse if it were told as it is, beside what it takes; waits for a file of its attempt, and fails first."""

import os
import sys
import time

import ydl

attempt = int(os.environ["YDL_ATTEMPT"])
ydl.report(step=(1 << 63) - 1, far=1.0)
ydl.report(step=attempt, **{"a//b": 1.0, "../up": 2.0, "/": 3.0, "acc@5": 4.0, "é": 5.0})
ydl.report(step=attempt, loss=float("nan"), most=float("inf"), least=float("-inf"), **{f"of{attempt}": attempt})
assert ydl.report_flush(60)
while not os.path.exists(f"{sys.argv[1]}.{attempt}"):
    time.sleep(0.05)
sys.exit(1 if attempt == 1 else 0)
