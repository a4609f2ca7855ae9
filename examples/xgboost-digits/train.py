"""Train boosted trees on handwritten digits, on one process or on many.

XGBoost takes the address of its tracker as arguments, which the program reads from the environment.
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
    if "dmlc_tracker_uri" not in os.environ:
        return contextlib.nullcontext()
    return collective.CommunicatorContext(
        dmlc_tracker_uri=os.environ["dmlc_tracker_uri"],
        dmlc_tracker_port=int(os.environ["dmlc_tracker_port"]),
        dmlc_task_id=os.environ["dmlc_task_id"],
    )


class Progress(xgb.callback.TrainingCallback):
    """Prints the progress, and optionally pauses after each round."""

    def __init__(self, seconds):
        self.seconds = seconds

    def after_iteration(self, model, epoch, evals_log):
        print(f"round {epoch + 1} error {evals_log['train']['merror'][-1]:.4f}", flush=True)
        time.sleep(self.seconds)
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
        print(f"rank {rank} of {world}", flush=True)
        data = xgb.DMatrix(images[rank::world], labels[rank::world])
        parameters = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "eta": 0.5, "nthread": 1,
                      "eval_metric": "merror"}
        model = xgb.train(parameters, data, args.rounds, evals=[(data, "train")], verbose_eval=False,
                          callbacks=[Progress(args.pause)])
        accuracy = float((model.predict(xgb.DMatrix(test_images)) == test_labels).mean())
        print(f"test accuracy {accuracy:.3f}", flush=True)
        trees = sum(float(part) for part in model.get_score(importance_type="total_gain").values())
        print(f"gain {trees:.3f}", flush=True)
        if rank == 0:
            MODEL.mkdir(exist_ok=True)
            model.save_model(MODEL / "digits.json")
            metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
            (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


main()
