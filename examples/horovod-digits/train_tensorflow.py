"""The same network and the same digits as in train.py, with Horovod and TensorFlow."""

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
    """scikit-learn's bundled set, as (images, labels) to learn and to test."""
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

    def answer(images):
        return tf.nn.relu(images @ first + first_bias) @ second + second_bias

    return answer, [first, first_bias, second, second_bias]


def resume(variables):
    """Rank 0 loads the last checkpoint, if any, and shares it; returns the number of epochs that are done."""
    epochs = 0
    if hvd.rank() == 0 and CHECKPOINT.exists():
        saved = np.load(CHECKPOINT)
        for number, variable in enumerate(variables):
            variable.assign(saved[f"arr_{number}"])
        epochs = int(saved["epochs"])
    hvd.broadcast_variables(variables, root_rank=0)
    return hvd.broadcast_object(epochs, root_rank=0)


def checkpoint(variables, epochs):
    """Save everything under a name that only a complete file ever gets."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, *[variable.numpy() for variable in variables], epochs=epochs)
    part.replace(CHECKPOINT)


def shard(count, batch_size, epoch, rank, world):
    """This process's share of each batch, as row numbers, one line per step: equally many steps for everyone."""
    share = batch_size // world
    steps = count // batch_size
    if share == 0 or steps == 0:
        raise SystemExit(f"a batch of {batch_size} cannot be shared by {world} processes")
    order = np.random.RandomState(SEED + epoch).permutation(count)
    return order[rank::world][: steps * share].reshape(steps, share)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step, all processes together")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    began = time.monotonic()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    rank, world = hvd.rank(), hvd.size()
    (images, labels), (test_images, test_labels) = digits()
    answer, variables = network()

    @tf.function
    def learn(some_images, some_labels):
        with tf.GradientTape() as plain:
            wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(some_labels, answer(some_images))
            loss = tf.reduce_mean(wrong)
        gradients = hvd.DistributedGradientTape(plain).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(args.lr * gradient)
        return loss

    first = resume(variables) + 1
    print(f"rank {rank} of {world}, from epoch {first}", flush=True)
    for epoch in range(first, args.epochs + 1):
        for rows in shard(len(images), args.batch_size, epoch, rank, world):
            loss = learn(images[rows], labels[rows])
            time.sleep(args.pause)
        if rank == 0:
            checkpoint(variables, epoch)
        print(f"epoch {epoch} loss {loss.numpy():.4f}", flush=True)

    accuracy = float(np.mean(np.argmax(answer(test_images).numpy(), axis=1) == test_labels))
    weights = sum(variable.numpy().astype(np.float64).sum() for variable in variables)
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        np.savez(MODEL / "digits.npz", *[variable.numpy() for variable in variables])
        metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - began, 3)}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        # What is finished need not be resumed: the next run begins anew.
        CHECKPOINT.unlink(missing_ok=True)
    hvd.shutdown()


main()
