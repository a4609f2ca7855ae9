"""The same training by as many processes as there are: they come and go, and it goes on from the last step that was kept.

Before a round begins anew everybody gets SIGTERM and some time. Rank 0 uses it to save what has been learned; without it,
as when its machine is gone, what came after the last regular checkpoint is done again. Every rank loads the checkpoint, so
its directory must be one that all of them see.
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


class Kept:
    """What outlives a round: the checkpoint, and the number of the last step that was ever taken."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.checkpoint = directory / "elastic.pt"
        self.reached = directory / "reached"

    def save(self, net, optimiser, step):
        """Save everything under a name that only a complete file ever gets."""
        part = self.checkpoint.with_suffix(".part")
        torch.save({"net": net.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, part)
        part.replace(self.checkpoint)

    def load(self, net, optimiser):
        """Load the last checkpoint, if any; returns how many steps are done, and how many more had been."""
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
    add("--until", type=pathlib.Path, metavar="FILE", help="go on after that until this file is there")
    add("--batch-size", type=int, default=64, help="images per step, all processes together")
    add("--lr", type=float, default=0.2, help="learning rate")
    add("--save-every", type=int, default=10, metavar="STEPS", help="how many steps may be lost")
    add("--checkpoint", type=pathlib.Path, default=os.environ.get("YDL_CHECKPOINT", "checkpoint"), metavar="DIRECTORY")
    add("--pause", type=float, default=0, metavar="SECONDS", help="wait after each batch")
    args = parser.parse_args()

    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    (images, labels), (test_images, test_labels) = digits()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=args.lr)
    kept = Kept(args.checkpoint)
    step, lost = kept.load(net, optimiser)
    # Nobody saves before everybody has loaded.
    dist.barrier()
    model = DistributedDataParallel(net)
    steps = len(images) // args.batch_size
    print(f"rank {rank} of {world} in round {os.environ.get('YDL_ROUND', 1)} goes on after step {step}, {lost} lost", flush=True)

    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    try:
        while not stopped:
            # Rank 0 says whether that was the last step.
            done = step >= args.epochs * steps and (args.until is None or args.until.exists())
            over = torch.tensor([int(done)])
            dist.broadcast(over, src=0)
            if over.item():
                break
            epoch, at = divmod(step, steps)
            rows = shard(len(images), args.batch_size, epoch, rank, world)[at]
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
            step += 1
            if rank == 0:
                kept.reach(step)
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                if step % args.save_every == 0:
                    kept.save(net, optimiser, step)
            time.sleep(args.pause)
    except RuntimeError as error:
        # Another has gone in the middle of a step, which then nobody has taken.
        if rank == 0:
            kept.save(net, optimiser, step)
        print(f"rank {rank} is alone after step {step}: {error}", flush=True)
        raise SystemExit(1) from error
    if stopped:
        if rank == 0:
            kept.save(net, optimiser, step)
        print(f"rank {rank} is stopped after step {step}", flush=True)
        raise SystemExit(1)

    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
        weights = sum(parameter.double().sum() for parameter in net.parameters()).item()
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    if rank == 0:
        MODEL.mkdir(exist_ok=True)
        torch.save(net.state_dict(), MODEL / "digits.pt")
    # Who is done waits for the others: a round whose first has gone would begin anew.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
