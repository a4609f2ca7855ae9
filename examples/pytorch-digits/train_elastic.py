"""Train elastically: processes may join and leave, and training resumes from the last saved step.

Before a new round all processes get SIGTERM and a grace period, in which rank 0 saves a checkpoint. If rank 0 cannot, for
example because its machine failed, the steps since the last regular checkpoint are repeated. All ranks load the checkpoint,
so its directory must be shared.
"""

import argparse
import os
import pathlib
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from train import MODEL, SEED, digits, shard


class Progress:
    """Persistent state: the checkpoint, and the number of the last step that was taken."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.checkpoint = directory / "elastic.pt"
        self.reached = directory / "reached"

    def save(self, net, optimiser, step):
        """Saves a checkpoint atomically: writes a temporary file and renames it."""
        part = self.checkpoint.with_suffix(".part")
        torch.save({"net": net.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, part)
        part.replace(self.checkpoint)

    def load(self, net, optimiser):
        """Loads the last checkpoint, if any; returns the number of its steps and of later, lost steps."""
        if not self.checkpoint.exists():
            return 0, 0
        saved = torch.load(self.checkpoint, weights_only=True)
        net.load_state_dict(saved["net"])
        optimiser.load_state_dict(saved["optimiser"])
        return saved["step"], max(0, self.last() - saved["step"])

    def reach(self, step):
        part = self.reached.with_suffix(".part")
        part.write_text(str(step))
        part.replace(self.reached)

    def last(self):
        return int(self.reached.read_text()) if self.reached.exists() else 0


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits, elastically.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--until", type=pathlib.Path, metavar="FILE", help="then continue until this file exists")
    add("--batch-size", type=int, default=64, help="images per step of all processes")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--save-every", type=int, default=10, metavar="STEPS", help="interval between two checkpoints")
    add("--checkpoint", type=pathlib.Path, default=os.environ.get("YDL_CHECKPOINT", "checkpoint"), metavar="DIRECTORY")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    (images, labels), (test_images, test_labels) = digits()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=args.lr)
    progress = Progress(args.checkpoint)
    step, lost = progress.load(net, optimiser)
    # No process may save before all have loaded.
    dist.barrier()
    model = DistributedDataParallel(net)
    steps = len(images) // args.batch_size
    print(f"rank {rank} of {world} in round {os.environ.get('YDL_ROUND', 1)} resumes after step {step}, {lost} lost", flush=True)

    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    try:
        while not stopped:
            # Rank 0 decides if that was the last step.
            done = step >= args.epochs * steps and (args.until is None or args.until.exists())
            finished = torch.tensor([int(done)])
            dist.broadcast(finished, src=0)
            if finished.item():
                break
            epoch, at = divmod(step, steps)
            rows = shard(len(images), args.batch_size, epoch, rank, world)[at]
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
            step += 1
            if rank == 0:
                progress.reach(step)
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                if step % args.save_every == 0:
                    progress.save(net, optimiser, step)
            time.sleep(args.pause)
    except RuntimeError as error:
        # Another process left during the step, so no process completed it.
        if rank == 0:
            progress.save(net, optimiser, step)
        print(f"rank {rank} lost a peer after step {step}: {error}", flush=True)
        raise SystemExit(1) from error
    if stopped:
        if rank == 0:
            progress.save(net, optimiser, step)
        print(f"rank {rank} stopped after step {step}", flush=True)
        raise SystemExit(1)

    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
        weights = sum(parameter.double().sum() for parameter in net.parameters()).item()
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        torch.save(net.state_dict(), MODEL / "digits.pt")
    # Wait for the others: an early exit of one process would start a new round.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
