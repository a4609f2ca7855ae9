"""Train the network of train.py with Horovod and TensorFlow."""

import argparse
import importlib.metadata
import json
import os
import pathlib
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "digits.npz"


def digits():
    """Returns scikit-learn's digits as (images, labels) for training and for test."""
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.random.RandomState(SEED).permutation(np.loadtxt(table, delimiter=",", dtype=np.float32))
    images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def network():
    random = tf.random.Generator.from_seed(SEED)

    def layer(inputs, outputs):
        start = random.normal([inputs, outputs], stddev=inputs**-0.5)
        return tf.Variable(start), tf.Variable(tf.zeros([outputs]))

    (first, first_bias), (second, second_bias) = layer(64, 128), layer(128, 10)

    def logits(images):
        return tf.nn.relu(images @ first + first_bias) @ second + second_bias

    return logits, [first, first_bias, second, second_bias]


def resume(variables):
    """Loads the last checkpoint, if any, on rank 0 and broadcasts it; returns the number of completed epochs."""
    epochs = 0
    if hvd.rank() == 0 and CHECKPOINT.exists():
        saved = np.load(CHECKPOINT)
        for number, variable in enumerate(variables):
            variable.assign(saved[f"arr_{number}"])
        epochs = int(saved["epochs"])
    hvd.broadcast_variables(variables, root_rank=0)
    return hvd.broadcast_object(epochs, root_rank=0)


def checkpoint(variables, epochs):
    """Saves a checkpoint atomically: writes a temporary file and renames it."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, *[variable.numpy() for variable in variables], epochs=epochs)
    part.replace(CHECKPOINT)


def shard(count, batch_size, epoch, rank, world):
    """Returns the row numbers of this process's share, one line per step. All processes take the same number of steps."""
    share = batch_size // world
    steps = count // batch_size
    if share == 0 or steps == 0:
        raise SystemExit(f"a batch of {batch_size} cannot be divided among {world} processes")
    order = np.random.RandomState(SEED + epoch).permutation(count)
    return order[rank::world][: steps * share].reshape(steps, share)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step of all processes")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    start = time.monotonic()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    rank, world = hvd.rank(), hvd.size()
    (images, labels), (test_images, test_labels) = digits()
    logits, variables = network()

    @tf.function
    def train_step(batch_images, batch_labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch_labels, logits(batch_images))
            loss = tf.reduce_mean(losses)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(args.lr * gradient)
        return loss

    first = resume(variables) + 1
    print(f"rank {rank} of {world}, from epoch {first}", flush=True)
    for epoch in range(first, args.epochs + 1):
        for rows in shard(len(images), args.batch_size, epoch, rank, world):
            loss = train_step(images[rows], labels[rows])
            time.sleep(args.pause)
        if rank == 0:
            checkpoint(variables, epoch)
        print(f"epoch {epoch} loss {loss.numpy():.4f}", flush=True)

    accuracy = float(np.mean(np.argmax(logits(test_images).numpy(), axis=1) == test_labels))
    weights = sum(variable.numpy().astype(np.float64).sum() for variable in variables)
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        np.savez(MODEL / "digits.npz", *[variable.numpy() for variable in variables])
        metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        # Training is complete: the next run starts from scratch.
        CHECKPOINT.unlink(missing_ok=True)
    hvd.shutdown()


main()
