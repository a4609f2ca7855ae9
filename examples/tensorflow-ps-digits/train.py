"""Train a small network on handwritten digits with parameter servers: the chief schedules steps on the workers, and the
servers hold the weights.

Workers and servers only execute the chief's requests until they are stopped.
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


class Network(tf.Module):
    """A network of two layers; its variables are placed where it is created."""

    def __init__(self):
        super().__init__()
        random = np.random.RandomState(SEED)
        layer = lambda rows, columns: random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)  # noqa: E731
        self.w1, self.b1 = tf.Variable(layer(64, 128)), tf.Variable(tf.zeros(128))
        self.w2, self.b2 = tf.Variable(layer(128, 10)), tf.Variable(tf.zeros(10))

    def __call__(self, images):
        return tf.nn.relu(images @ self.w1 + self.b1) @ self.w2 + self.b2


def serve(cluster):
    """Runs a worker or server, which does not exit by itself."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    )
    print(f"{cluster.task_type} {cluster.task_id} serves", flush=True)
    server.join()


def train(cluster, args):
    start = time.monotonic()
    workers = len(cluster.cluster_spec().as_dict()["worker"])
    train_rows, (test_images, test_labels) = digits()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        net = Network()
        epochs = tf.Variable(0, dtype=tf.int64)
    saver = tf.train.CheckpointManager(tf.train.Checkpoint(net=net, epochs=epochs), str(CHECKPOINT), max_to_keep=1)
    saver.restore_or_initialize()
    first = int(epochs.numpy()) + 1
    print(f"chief of {workers} workers, from epoch {first}", flush=True)

    def rows():
        images = tf.data.Dataset.from_tensor_slices(train_rows)
        return images.shuffle(len(train_rows[0]), seed=SEED).repeat().batch(args.batch_size)

    @tf.function
    def step(batches):
        def one(images, labels):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
                loss = tf.reduce_mean(losses)
            variables = net.trainable_variables
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                variable.assign_sub(args.lr * gradient)
            return loss

        return strategy.run(one, args=next(batches))

    batches = iter(coordinator.create_per_worker_dataset(rows))
    steps = len(train_rows[0]) // args.batch_size
    for epoch in range(first, args.epochs + 1):
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
        coordinator.join()
        epochs.assign(epoch)
        saver.save()
        print(f"epoch {epoch} loss {np.mean(coordinator.fetch(losses)):.4f}", flush=True)
        time.sleep(args.pause)

    accuracy = float((np.argmax(net(test_images), 1) == test_labels).mean())
    print(f"test accuracy {accuracy:.3f}", flush=True)
    MODEL.mkdir(exist_ok=True)
    np.savez(MODEL / "digits.npz", *[one.numpy() for one in net.trainable_variables])
    metrics = {"test_accuracy": accuracy, "workers": workers, "seconds": round(time.monotonic() - start, 3)}
    (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step of a worker")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each epoch")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    # Calls of the chief to a failed server fail instead of waiting for it.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    else:
        train(cluster, args)


main()
