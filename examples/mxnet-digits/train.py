"""Teach a small network to read handwritten digits, on one process or on many.

Every process of the job runs this same file. In a server `import mxnet` does not return: it serves
until the workers are done and then exits. Only workers get past it.
"""

import mxnet as mx

import argparse
import importlib.metadata
import json
import os
import pathlib
import time

import numpy as np
from mxnet import autograd, gluon

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint"))
# Keys of what rank 0 tells the others at the start; the trainer itself counts from 0.
START_KEYS = 1_000_000


def digits():
    """scikit-learn's bundled set, 1797 images of 8 by 8, as (images, labels) to learn and to test.

    The file is read straight from the installed package: `sklearn.datasets.load_digits` reads the
    same one, but importing scikit-learn needs scipy and takes longer than the training.
    """
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64] / 16, rows[:, 64]
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros((1, 64)))  # the first call gives the layers their shapes
    return net


def shard(count, batch_size, epoch, kv):
    """This worker's share of each batch, as row numbers, one line per step.

    Everyone must take equally many steps, because `dist_sync` waits for all of them at each.
    """
    share = batch_size // kv.num_workers
    steps = count // batch_size
    if share == 0 or steps == 0:
        raise SystemExit(f"a batch of {batch_size} cannot be shared by {kv.num_workers} workers")
    order = np.random.RandomState(SEED + epoch).permutation(count)
    return order[kv.rank :: kv.num_workers][: steps * share].reshape(steps, share)


def resume(net, kv):
    """Load the last checkpoint, if any; returns the epoch to begin with, the same on all workers.

    Only rank 0 reads it, because only rank 0 wrote it; the others get weights and epoch from the
    servers.
    """
    epoch = mx.nd.zeros(1)
    saved = sorted(CHECKPOINT.glob("epoch-*.params"))
    if kv.rank == 0 and saved:
        net.load_parameters(str(saved[-1]))
        epoch[:] = int(saved[-1].stem.split("-")[1])
        print(f"resuming after epoch {int(epoch.asscalar())}", flush=True)
    start = [epoch] + [parameter.data() for parameter in net.collect_params().values()]
    keys = [START_KEYS + i for i in range(len(start))]
    kv.init(keys, start)
    kv.pull(keys, out=start)
    return int(epoch.asscalar())


def checkpoint(net, epoch):
    """Save the weights, under a name that only a complete file ever gets."""
    CHECKPOINT.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT / "part"
    net.save_parameters(str(part))
    part.replace(CHECKPOINT / f"epoch-{epoch:04}.params")
    for older in sorted(CHECKPOINT.glob("epoch-*.params"))[:-2]:
        older.unlink()


def save(net, metrics):
    MODEL.mkdir(exist_ok=True)
    net.export(str(MODEL / "digits"))  # digits-symbol.json and digits-0000.params
    (MODEL / "digits-0000.params").replace(MODEL / "digits.params")
    (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    # What is finished need not be resumed: the next run begins anew.
    for done in CHECKPOINT.glob("epoch-*.params"):
        done.unlink()


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step, all workers together")
    add("--lr", type=float, default=0.2, help="learning rate")
    # A launcher says by DMLC_ROLE that there are servers to talk to.
    add("--kv-store", default="dist_sync" if "DMLC_ROLE" in os.environ else "local")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    began = time.monotonic()
    mx.random.seed(SEED)
    kv = mx.kv.create(args.kv_store)
    (images, labels), (test_images, test_labels) = digits()
    net = network()
    first = resume(net, kv) + 1
    print(f"rank {kv.rank} of {kv.num_workers}, from epoch {first}", flush=True)
    trainer = gluon.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": args.lr, "momentum": 0.9},
        kvstore=kv,
        update_on_kvstore=True,
    )
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    history = []

    for epoch in range(first, args.epochs + 1):
        accuracy = mx.metric.Accuracy()
        for batch in shard(len(images), args.batch_size, epoch, kv):
            x, y = mx.nd.array(images[batch]), mx.nd.array(labels[batch])
            with autograd.record():
                scores = net(x)
                error = loss(scores, y)
            error.backward()
            trainer.step(len(batch) * kv.num_workers)
            accuracy.update(y, scores)
            time.sleep(args.pause)
        history.append(accuracy.get()[1])
        print(f"epoch {epoch} accuracy {history[-1]:.2f}", flush=True)
        if kv.rank == 0:
            checkpoint(net, epoch)

    test = mx.metric.Accuracy()
    test.update(mx.nd.array(test_labels), net(mx.nd.array(test_images)))
    print(f"test accuracy {test.get()[1]:.2f}", flush=True)
    if kv.rank == 0:
        save(net, {
            "test_accuracy": test.get()[1],
            "train_accuracy": history,
            "epochs": args.epochs,
            "first_epoch": first,
            "workers": kv.num_workers,
            "seconds": round(time.monotonic() - began, 2),
        })


if __name__ == "__main__":
    main()
