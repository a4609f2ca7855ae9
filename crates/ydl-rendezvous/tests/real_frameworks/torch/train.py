"""Runs a rendezvous, trains a small model and creates more groups."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)

torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
weights = torch.cat([part.detach().flatten() for part in model.parameters()])
all_weights = [torch.zeros_like(weights) for _ in range(world)]
dist.all_gather(all_weights, weights)
assert all(torch.equal(weights, others) for others in all_weights)

for _ in range(3):
    dist.barrier(dist.new_group(list(range(world))))
print(f"rank {rank} of {world} sum {total.item()} weights {weights.sum().item():.6f}")
dist.destroy_process_group()
