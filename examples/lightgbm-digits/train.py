"""Train boosted trees on handwritten digits, on one process or on many that divide the rows.

LightGBM takes the addresses of its peers as parameters, which the program reads from the environment.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import time

import lightgbm as lgb
import numpy as np

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


def peers():
    """Returns the parameters with all processes; empty for a single process."""
    if "machines" not in os.environ:
        return {}
    numbers = {name: int(os.environ[name]) for name in ("local_listen_port", "num_machines")}
    return {"machines": os.environ["machines"], **numbers, "tree_learner": "data", "pre_partition": True}


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--rounds", type=int, default=20)
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each round")
    args = parser.parse_args()
    rank, world = int(os.environ.get("YDL_RANK", 0)), int(os.environ.get("YDL_WORLD_SIZE", 1))
    (images, labels), (test_images, test_labels) = digits()
    print(f"rank {rank} of {world}", flush=True)
    parameters = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "num_threads": 1, "verbose": -1, **peers()}
    data = lgb.Dataset(images[rank::world].copy(), labels[rank::world].copy())

    def progress(environment):
        print(f"round {environment.iteration + 1}", flush=True)
        time.sleep(args.pause)

    model = lgb.train(parameters, data, args.rounds, callbacks=[progress])
    accuracy = float((model.predict(test_images).argmax(1) == test_labels).mean())
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"gain {model.feature_importance('gain').sum():.3f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        model.save_model(MODEL / "digits.txt")
        (MODEL / "metrics.json").write_text(json.dumps({"test_accuracy": accuracy, "processes": world}, indent=2) + "\n")


main()
