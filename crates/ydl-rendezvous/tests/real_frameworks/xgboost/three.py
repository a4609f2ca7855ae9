"""Trains a model twice and prints its digest. If KILLED is its index, the worker kills itself after the first model; the others sleep for SLEEP seconds."""

import hashlib
import os
import signal
import time

import numpy as np
import xgboost as xgb
from xgboost import collective

arguments = {
    "dmlc_tracker_uri": "127.0.0.1",
    "dmlc_tracker_port": int(os.environ["TRACKER_PORT"]),
    # In reverse order: ranks must not depend on it.
    "dmlc_task_id": str(9 - int(os.environ["INDEX"])),
}
for attempt in range(2):
    with collective.CommunicatorContext(**arguments):
        rank = collective.get_rank()
        total = collective.allreduce(np.array([rank + 1.0]), collective.Op.SUM)[0]
        random = np.random.default_rng(rank)
        x = random.normal(size=(200, 4))
        data = xgb.DMatrix(x, (x[:, 0] + x[:, 1] > 0).astype(int))
        model = xgb.train({"max_depth": 3, "objective": "binary:logistic"}, data, 5)
        digest = hashlib.sha256(bytes(model.save_raw("json"))).hexdigest()
        print("rank", rank, "sum", total, "model", digest, flush=True)
        if "KILLED" in os.environ:
            if os.environ["INDEX"] == os.environ["KILLED"]:
                os.kill(os.getpid(), signal.SIGKILL)
            # Not in a collective operation: only the tracker can stop it.
            time.sleep(int(os.environ["SLEEP"]))
