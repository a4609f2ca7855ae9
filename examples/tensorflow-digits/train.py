"""Train a small network on handwritten digits with Keras and MultiWorkerMirroredStrategy, on one process or on many.

The strategy reads the role of this process and the addresses of all processes from `TF_CONFIG`.
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
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint"))


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test.

    Reads the file in the installed package without importing scikit-learn.
    """
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


class Progress(tf.keras.callbacks.Callback):
    """Prints the first epoch and the progress, and optionally pauses after each batch."""

    def __init__(self, rank, world, pause):
        super().__init__()
        self.title, self.pause = f"rank {rank} of {world}", pause

    def on_epoch_begin(self, epoch, logs=None):
        if self.title:
            print(f"{self.title}, from epoch {epoch + 1}", flush=True)
            self.title = None

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.pause)

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1} loss {logs['loss']:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step of all processes")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    start = time.monotonic()
    tf.keras.utils.set_random_seed(SEED)
    rank, world, strategy = 0, 1, tf.distribute.get_strategy()
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        cluster = strategy.cluster_resolver
        chiefs = len(cluster.cluster_spec().as_dict().get("chief", []))
        rank = cluster.task_id + (0 if cluster.task_type == "chief" else chiefs)
        world = strategy.num_replicas_in_sync
    train, (test_images, test_labels) = digits()
    rows = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[0]), seed=SEED).repeat().batch(args.batch_size)
    # Each process reads all rows and uses its share.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)]
        net = tf.keras.Sequential(layers)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(tf.keras.optimizers.SGD(args.lr), loss)
    # The first process saves a backup after each epoch; a restarted process resumes from it.
    backup = tf.keras.callbacks.BackupAndRestore(str(CHECKPOINT / "digits"))
    callbacks = [backup, Progress(rank, world, args.pause)]
    steps = len(train[0]) // args.batch_size
    net.fit(rows.with_options(options), epochs=args.epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=0)

    accuracy = float((np.argmax(net(test_images), 1) == test_labels).mean())
    weights = sum(one.astype(np.float64).sum() for one in net.get_weights())
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        np.savez(MODEL / "digits.npz", *net.get_weights())
        metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


main()
