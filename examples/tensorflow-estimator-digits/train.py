"""Train a small network on handwritten digits with an Estimator: chief and workers train, parameter servers hold the
weights, and the evaluator evaluates each checkpoint. All run this program; `train_and_evaluate` reads its role from
`TF_CONFIG`.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import time

import numpy as np
import tensorflow as tf

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "digits"


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test."""
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


class Metrics(tf.estimator.Exporter):
    """Prints each evaluation and saves the last one."""

    name = "metrics"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        accuracy, step = float(eval_result["accuracy"]), int(eval_result["global_step"])
        print(f"step {step} test accuracy {accuracy:.3f}", flush=True)
        MODEL.mkdir(exist_ok=True)
        (MODEL / "metrics.json").write_text(json.dumps({"test_accuracy": accuracy, "step": step}, indent=2) + "\n")


class Progress(tf.estimator.SessionRunHook):
    """Prints the progress, and optionally pauses after each step."""

    def __init__(self, seconds):
        self.seconds = seconds

    def begin(self):
        self.step = tf.compat.v1.train.get_global_step()

    def before_run(self, context):
        return tf.estimator.SessionRunArgs(self.step)

    def after_run(self, context, values):
        if values.results % 10 == 0:
            print(f"step {values.results}", flush=True)
        time.sleep(self.seconds)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--steps", type=int, default=300, help="number of steps of all processes")
    add("--batch-size", type=int, default=64, help="images per step")
    add("--lr", type=float, default=0.1, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each step")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    train, test = digits()

    def rows(data):
        return tf.data.Dataset.from_tensor_slices(({"image": data[0]}, data[1]))

    image = tf.feature_column.numeric_column("image", (64,))
    config = tf.estimator.RunConfig(str(CHECKPOINT), tf_random_seed=SEED, save_checkpoints_steps=100)
    print(f"{config.task_type} {config.task_id} of {config.num_worker_replicas}", flush=True)
    optimizer = lambda: tf.keras.optimizers.legacy.SGD(args.lr)  # noqa: E731
    net = tf.estimator.DNNClassifier([128], [image], n_classes=10, optimizer=optimizer, config=config)
    train_input = lambda: rows(train).shuffle(len(train[0])).repeat().batch(args.batch_size)  # noqa: E731
    test_input = lambda: rows(test).batch(TEST_ROWS)  # noqa: E731
    # The evaluator exits after the checkpoint of the last step, which it knows from `max_steps`.
    train_spec = tf.estimator.TrainSpec(train_input, max_steps=args.steps, hooks=[Progress(args.pause)])
    eval_spec = tf.estimator.EvalSpec(test_input, steps=None, exporters=[Metrics()], start_delay_secs=1, throttle_secs=1)
    tf.estimator.train_and_evaluate(net, train_spec, eval_spec)
    print(f"{config.task_type} {config.task_id} is done", flush=True)


main()
