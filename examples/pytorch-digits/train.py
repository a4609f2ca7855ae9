"""Train a small network on handwritten digits with DistributedDataParallel, on one process or on many.

`init_process_group` reads rank, world size and rendezvous address from the environment.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEED = 1
TEST_ROWS = 297
MODEL = pathlib.Path("model")
CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "digits.pt"


def digits():
    """Returns scikit-learn's digits, 1797 images of 8 by 8, as (images, labels) for training and for test.

    Reads the file in the installed package without importing scikit-learn.
    """
    package = importlib.metadata.distribution("scikit-learn")
    table = package.locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(table, delimiter=",", dtype=np.float32)
    rows = torch.from_numpy(np.random.RandomState(SEED).permutation(rows))
    images, labels = rows[:, :64] / 16, rows[:, 64].long()
    return (images[TEST_ROWS:], labels[TEST_ROWS:]), (images[:TEST_ROWS], labels[:TEST_ROWS])


def resume(net, optimiser):
    """Loads the last checkpoint, if any; returns the number of completed epochs."""
    if not CHECKPOINT.exists():
        return 0
    saved = torch.load(CHECKPOINT, weights_only=True)
    net.load_state_dict(saved["net"])
    optimiser.load_state_dict(saved["optimiser"])
    return saved["epochs"]


def checkpoint(net, optimiser, epochs):
    """Saves a checkpoint atomically: writes a temporary file and renames it."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_suffix(".part")
    torch.save({"net": net.state_dict(), "optimiser": optimiser.state_dict(), "epochs": epochs}, part)
    part.replace(CHECKPOINT)


def shard(count, batch_size, epoch, rank, world):
    """Returns the row numbers of this process's share, one line per step. All processes take the same number of steps."""
    share = batch_size // world
    steps = count // batch_size
    if share == 0 or steps == 0:
        raise SystemExit(f"a batch of {batch_size} cannot be divided among {world} processes")
    order = torch.from_numpy(np.random.RandomState(SEED + epoch).permutation(count))
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
    torch.manual_seed(SEED)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    (images, labels), (test_images, test_labels) = digits()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=args.lr)
    first = resume(net, optimiser) + 1
    model = DistributedDataParallel(net) if world > 1 else net
    print(f"rank {rank} of {world}, from epoch {first}", flush=True)
    for epoch in range(first, args.epochs + 1):
        for rows in shard(len(images), args.batch_size, epoch, rank, world):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
            time.sleep(args.pause)
        if rank == 0:
            checkpoint(net, optimiser, epoch)
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
        weights = sum(parameter.double().sum() for parameter in net.parameters()).item()
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        torch.save(net.state_dict(), MODEL / "digits.pt")
        metrics = {"test_accuracy": accuracy, "processes": world, "seconds": round(time.monotonic() - start, 3)}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        # Training is complete: the next run starts from scratch.
        CHECKPOINT.unlink(missing_ok=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
