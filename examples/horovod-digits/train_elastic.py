"""Train the network of train.py with Elastic Horovod: processes may join and leave during training.

The state is committed every few batches. When a process joins, all processes synchronize at the next commit. When a process
fails, the others roll back to the last commit and continue without it.
"""

import argparse
import json
import time

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

from train import CHECKPOINT, MODEL, SEED, checkpoint, digits, load

COMMIT_EVERY = 5


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--batch-size", type=int, default=64, help="images per step of all processes")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    hvd.init()
    (images, labels), (test_images, test_labels) = digits()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    base = torch.optim.SGD(net.parameters(), lr=args.lr)
    optimiser = hvd.DistributedOptimizer(base, named_parameters=net.named_parameters())
    steps = len(images) // args.batch_size

    @hvd.elastic.run
    def train(state):
        rank, world = hvd.rank(), hvd.size()
        print(f"rank {rank} of {world}, from epoch {state.epoch} batch {state.batch}", flush=True)
        while state.epoch <= args.epochs:
            order = np.random.RandomState(SEED + state.epoch).permutation(len(images))
            while state.batch < steps:
                first = state.batch * args.batch_size
                rows = order[first : first + args.batch_size][rank::world]
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(net(images[rows]), labels[rows])
                loss.backward()
                optimiser.step()
                time.sleep(args.pause)
                state.batch += 1
                if state.batch % COMMIT_EVERY == 0:
                    state.commit()
            if rank == 0:
                checkpoint(net, optimiser, state.epoch)
            print(f"epoch {state.epoch} loss {loss.item():.4f}", flush=True)
            state.epoch, state.batch = state.epoch + 1, 0
            state.commit()

    # New processes get the state of rank 0. If no process with state is left, training resumes from the checkpoint.
    train(hvd.elastic.TorchState(net, optimiser, epoch=load(net, optimiser) + 1, batch=0))
    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
        weights = sum(parameter.double().sum() for parameter in net.parameters()).item()
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if hvd.rank() == 0:
        MODEL.mkdir(exist_ok=True)
        torch.save(net.state_dict(), MODEL / "digits.pt")
        metrics = {"test_accuracy": accuracy, "processes": hvd.size()}
        (MODEL / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        CHECKPOINT.unlink(missing_ok=True)


main()
