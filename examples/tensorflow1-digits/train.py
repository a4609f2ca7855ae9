"""Train a small network on handwritten digits with TensorFlow 1: each worker builds the graph, and the parameter servers
hold the weights. Four flags describe the cluster.
"""

import argparse
import itertools
import json
import os
import pathlib
import sysconfig
import time

import numpy as np
import tensorflow as tf

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "digits"


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test.

    Reads the file in the installed package without importing scikit-learn.
    """
    table = pathlib.Path(sysconfig.get_path("platlib"), "sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(table), delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def network(images):
    random = np.random.RandomState(SEED)
    layer = lambda rows, columns: random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)  # noqa: E731
    hidden = tf.nn.relu(images @ tf.Variable(layer(64, 128)) + tf.Variable(np.zeros(128, np.float32)))
    return hidden @ tf.Variable(layer(128, 10)) + tf.Variable(np.zeros(10, np.float32))


def train(args, cluster, server):
    index = args.task_index
    data, test = digits()
    # Variables are distributed over the servers; all other operations run here.
    device = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
    with tf.Graph().as_default(), tf.device(device):
        images, labels = tf.placeholder(tf.float32, (None, 64)), tf.placeholder(tf.int64, (None,))
        step = tf.train.get_or_create_global_step()
        logits = network(images)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        learn = tf.train.GradientDescentOptimizer(args.lr).minimize(loss, global_step=step)
        accuracy_of = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        # The first worker initializes or restores the weights; the others poll for them every second.
        supervisor = tf.train.Supervisor(
            is_chief=index == 0,
            logdir=str(CHECKPOINT),
            global_step=step,
            summary_op=None,
            save_model_secs=0,
            recovery_wait_secs=1,
        )
        # A worker connects only to servers, because other workers may have exited.
        config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
        random, workers = np.random.RandomState(SEED + index), len(cluster.job_tasks("worker"))
        with supervisor.managed_session(server.target, config) as session:
            at = session.run(step)
            saved = at
            print(f"worker {index} of {workers}, from step {at}", flush=True)
            for count in itertools.count(1):
                if at >= args.steps:
                    break
                rows = random.randint(len(data[0]), size=args.batch_size)
                feed = {images: data[0][rows], labels: data[1][rows]}
                at, now, _ = session.run((step, loss, learn), feed)
                if index == 0 and at >= saved + 50:
                    supervisor.saver.save(session, supervisor.save_path, global_step=step)
                    saved = at
                if count % 10 == 0:
                    print(f"step {at} loss {now:.4f}", flush=True)
                time.sleep(args.pause)
            accuracy = session.run(accuracy_of, {images: test[0], labels: test[1]})
    print(f"test accuracy {accuracy:.3f}", flush=True)
    if index == 0:
        MODEL.mkdir(exist_ok=True)
        metrics = {"test_accuracy": float(accuracy), "steps": args.steps}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


def main():
    tf.compat.v1.logging.set_verbosity("ERROR")
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--ps_hosts", required=True, help="addresses of the parameter servers: host:port,host:port")
    add("--worker_hosts", required=True, help="addresses of the workers")
    add("--job_name", required=True, choices=["ps", "worker"], help="job of this process")
    add("--task_index", required=True, type=int, help="index of this process in its job")
    add("--steps", type=int, default=600, help="number of steps of all workers")
    add("--batch-size", type=int, default=64, help="images per step")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each step")
    args = parser.parse_args()
    hosts = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    cluster = tf.train.ClusterSpec(hosts)
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        # Serves until it is stopped.
        server.join()
    else:
        train(args, cluster, server)


main()
