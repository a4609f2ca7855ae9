"""Trains a model and prints its digest. If KILLED is its index, the worker kills itself during training."""

import collections.abc
import hashlib
import os
import signal

# Old XGBoost uses the former name.
collections.Mapping = collections.abc.Mapping

import numpy as np
import xgboost as xgb
from xgboost import rabit

arguments = ["DMLC_TRACKER_URI=127.0.0.1", "DMLC_TRACKER_PORT=" + os.environ["TRACKER_PORT"]]
# In reverse order: ranks must not depend on it.
arguments.append("DMLC_TASK_ID=%d" % (9 - int(os.environ["INDEX"])))
rabit.init([argument.encode() for argument in arguments])
rank = rabit.get_rank()


def die(environment):
    if os.environ.get("KILLED") == os.environ["INDEX"] and environment.iteration == 4:
        os.kill(os.getpid(), signal.SIGKILL)


random = np.random.RandomState(rank)
x = random.normal(size=(200, 4))
data = xgb.DMatrix(x, (x[:, 0] + x[:, 1] > 0).astype(int))
parameters = {"max_depth": 3, "objective": "binary:logistic", "tree_method": "approx", "silent": 1}
model = xgb.train(parameters, data, 10, callbacks=[die])
digest = hashlib.sha256(bytes(model.save_raw())).hexdigest()
rabit.tracker_print("rank %d is done\n" % rank)
x = np.random.RandomState(77).normal(size=(1000, 4))
right = ((model.predict(xgb.DMatrix(x)) > 0.5) == (x[:, 0] + x[:, 1] > 0)).mean()
good = "good" if right > 0.9 else "poor"
print("rank", rank, "of", rabit.get_world_size(), "has a", good, "model", digest, flush=True)
rabit.finalize()
