"""Train boosted trees on handwritten digits with XGBoost 1.x, whose workers connect to a Rabit tracker.

Its address and the id of the worker are arguments, which the program reads from the environment.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import time

import numpy as np
import xgboost as xgb
from xgboost import collective

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "trees.json"


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test."""
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64], rows[:, 64]
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def communicator():
    """Returns a context that connects all workers; without tracker variables this process trains alone."""
    names = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID")
    if names[0] not in os.environ:
        return contextlib.nullcontext()
    return collective.CommunicatorContext(**{name: os.environ[name] for name in names})


class Checkpoint(xgb.callback.TrainingCallback):
    """Saves all trees on rank 0 after each round, atomically."""

    def __init__(self, done, pause):
        self.done, self.pause = done, pause

    def after_iteration(self, model, epoch, evals_log):
        if collective.get_rank() == 0:
            CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
            part = CHECKPOINT.with_name(".part.json")
            model.save_model(part)
            part.replace(CHECKPOINT)
        print(f"round {self.done + epoch + 1} error {evals_log['train']['merror'][-1]:.4f}", flush=True)
        time.sleep(self.pause)
        return False


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--rounds", type=int, default=10)
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each round")
    args = parser.parse_args()

    start = time.monotonic()
    (images, labels), (test_images, test_labels) = digits()
    with communicator():
        rank, world = collective.get_rank(), collective.get_world_size()
        previous = xgb.Booster(model_file=CHECKPOINT) if CHECKPOINT.exists() else None
        done = previous.num_boosted_rounds() if previous else 0
        print(f"rank {rank} of {world}, from round {done + 1}", flush=True)
        data = xgb.DMatrix(images[rank::world], labels[rank::world])
        parameters = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "eta": 0.5, "nthread": 1,
                      "eval_metric": "merror"}
        model = xgb.train(parameters, data, args.rounds - done, evals=[(data, "train")], verbose_eval=False,
                          xgb_model=previous, callbacks=[Checkpoint(done, args.pause)])
        accuracy = float((model.predict(xgb.DMatrix(test_images)) == test_labels).mean())
        print(f"test accuracy {accuracy:.3f}", flush=True)
        trees = sum(float(part) for part in model.get_score(importance_type="total_gain").values())
        print(f"gain {trees:.3f}", flush=True)
        if rank == 0:
            MODEL.mkdir(exist_ok=True)
            model.save_model(MODEL / "digits.json")
            metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
            (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
            # Training is complete: the next run starts from scratch.
            CHECKPOINT.unlink(missing_ok=True)


main()
