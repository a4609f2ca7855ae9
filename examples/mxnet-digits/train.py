"""Train a small network on handwritten digits, on one process or on many.

All processes of the job run this file. In a parameter server `import mxnet` does not return: it serves
until the workers finish, then exits. Only workers run the code below.
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
# First key of the initial values from rank 0; the trainer uses keys from 0.
START_KEYS = 1_000_000


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test.

    Reads the file of `sklearn.datasets.load_digits` in the installed package, because importing
    scikit-learn requires scipy and takes longer than the training.
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
    net(mx.nd.zeros((1, 64)))  # the first call sets the shapes of the layers
    return net


def shard(count, batch_size, epoch, kv):
    """Returns the row numbers of this worker's share, one line per step.

    All workers must take the same number of steps, because `dist_sync` synchronizes each step.
    """
    share = batch_size // kv.num_workers
    steps = count // batch_size
    if share == 0 or steps == 0:
        raise SystemExit(f"a batch of {batch_size} cannot be divided among {kv.num_workers} workers")
    order = np.random.RandomState(SEED + epoch).permutation(count)
    return order[kv.rank :: kv.num_workers][: steps * share].reshape(steps, share)


def resume(net, kv):
    """Loads the last checkpoint, if any; returns the number of completed epochs on all workers.

    Rank 0 reads the checkpoint, because only rank 0 writes it. The others get weights and epoch from
    the servers.
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
    """Saves a checkpoint atomically: writes a temporary file and renames it."""
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
    # Training is complete: the next run starts from scratch.
    for path in CHECKPOINT.glob("epoch-*.params"):
        path.unlink()


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step of all workers")
    add("--lr", type=float, default=0.2, help="learning rate")
    # A launcher sets DMLC_ROLE if there are parameter servers.
    add("--kv-store", default="dist_sync" if "DMLC_ROLE" in os.environ else "local")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    start = time.monotonic()
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
            "seconds": round(time.monotonic() - start, 2),
        })


if __name__ == "__main__":
    main()
