"""Train the same network with parameters, gradients and optimiser state sharded over the processes (FSDP).

Checkpoints contain the whole model: any number of processes can read them, also without FSDP.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from train import SEED, digits, shard

CHECKPOINT = pathlib.Path(os.environ.get("YDL_CHECKPOINT", "checkpoint")) / "fsdp.pt"
WHOLE = StateDictOptions(full_state_dict=True)


def sharded(net):
    """Shards each layer separately, so that a process holds at most one whole layer at a time."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits with FSDP.")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()

    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    (images, labels), (test_images, test_labels) = digits()
    net = sharded(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    first = 1
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT, weights_only=True)
        set_model_state_dict(net, saved["net"], options=WHOLE)
        first = saved["epochs"] + 1
    own = sum(parameter.to_local().numel() for parameter in net.parameters())
    every = sum(parameter.numel() for parameter in net.parameters())
    print(f"rank {rank} of {world} has {own} of {every} parameters, from epoch {first}", flush=True)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2)
    for epoch in range(first, args.epochs + 1):
        for rows in shard(len(images), 64, epoch, rank, world):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
        whole = get_model_state_dict(net, options=WHOLE)
        if rank == 0:
            CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
            part = CHECKPOINT.with_name(".fsdp.pt")
            torch.save({"net": whole, "epochs": epoch}, part)
            part.replace(CHECKPOINT)
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
        weights = sum(parameter.double().full_tensor().sum() for parameter in net.parameters()).item()
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
