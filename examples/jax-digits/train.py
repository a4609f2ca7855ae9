"""Train a small network on handwritten digits with JAX, on one process or on many.

JAX reads the coordinator's address from the environment. The program passes the number of processes and its rank.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "digits.npz"


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test.

    Reads the file in the installed package without importing scikit-learn.
    """
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = np.random.RandomState(SEED).permutation(rows)
    images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int32)
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def network():
    random = np.random.RandomState(SEED)
    layer = lambda rows, columns: random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)  # noqa: E731
    return {"w1": layer(64, 128), "b1": np.zeros(128, np.float32), "w2": layer(128, 10), "b2": np.zeros(10, np.float32)}


def logits(net, images):
    return jnp.maximum(images @ net["w1"] + net["b1"], 0) @ net["w2"] + net["b2"]


def loss_of(net, images, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(net, images)), labels[:, None], axis=1)
    return -chosen.mean()


def step_on(mesh, rate):
    """Returns a training step. Each process has the whole network and its rows of the batch."""
    rows, whole = PartitionSpec("process"), PartitionSpec()

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(whole, rows, rows), out_specs=(whole, whole), check_vma=False)
    def step(net, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(net, images, labels)
        count = jax.lax.psum(1, "process")
        loss, gradients = jax.tree.map(lambda one: jax.lax.psum(one, "process") / count, (loss, gradients))
        return jax.tree.map(lambda old, gradient: old - rate * gradient, net, gradients), loss

    return step


def resume(net):
    """Returns the last checkpoint, if any, and the number of completed epochs."""
    if not CHECKPOINT.exists():
        return net, 0
    with np.load(CHECKPOINT) as saved:
        return {name: saved[name] for name in net}, int(saved["epochs"])


def checkpoint(net, epochs):
    """Saves a checkpoint atomically: writes a temporary file and renames it."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_suffix(".part.npz")
    np.savez(part, epochs=epochs, **net)
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
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        numbers = {name: int(os.environ["JAX_" + name.upper()]) for name in ("num_processes", "process_id")}
        jax.distributed.initialize(**numbers)
    rank, world = jax.process_index(), jax.process_count()
    mesh = Mesh(jax.devices(), ("process",))
    # Wait until all processes are present.
    present = multihost_utils.process_allgather(np.array([rank])).ravel().tolist()
    (images, labels), (test_images, test_labels) = digits()
    # Use the checkpoint of rank 0: the other processes may be on new nodes without one.
    local, done = multihost_utils.broadcast_one_to_all(resume(network()))
    first = int(done) + 1
    print(f"rank {rank} of {world}, from epoch {first}", flush=True)
    print(f"present {present}", flush=True)
    to_global = partial(multihost_utils.host_local_array_to_global_array, global_mesh=mesh)
    step = step_on(mesh, args.lr)
    net = to_global(local, pspecs=PartitionSpec())
    for epoch in range(first, args.epochs + 1):
        for rows in shard(len(images), args.batch_size, epoch, rank, world):
            batch = to_global((images[rows], labels[rows]), pspecs=PartitionSpec("process"))
            net, loss = step(net, *batch)
            time.sleep(args.pause)
        local = jax.tree.map(lambda one: np.asarray(one.addressable_data(0)), net)
        if rank == 0:
            checkpoint(local, epoch)
        print(f"epoch {epoch} loss {float(loss.addressable_data(0)):.4f}", flush=True)

    accuracy = float((np.asarray(logits(local, test_images)).argmax(1) == test_labels).mean())
    weights = sum(one.astype(np.float64).sum() for one in local.values())
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        np.savez(MODEL / "digits.npz", **local)
        metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        # Training is complete: the next run starts from scratch.
        CHECKPOINT.unlink(missing_ok=True)


main()
