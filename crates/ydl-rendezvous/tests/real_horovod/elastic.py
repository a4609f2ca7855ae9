"""Trains in a world whose members come and go, until it was of two, three and two processes."""

import os
import pathlib
import time

import horovod.torch as hvd
import torch

torch.set_num_threads(1)
torch.manual_seed(1)
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.001), named_parameters=model.named_parameters()
)
mark = pathlib.Path(os.environ["MARK"])
worlds = []


@hvd.elastic.run
def train(state):
    worlds.append(hvd.size())
    if state.sizes[-1:] != [hvd.size()]:
        state.sizes, state.since = state.sizes + [hvd.size()], 0
    while len(state.sizes) < 3 or state.since < 5:
        optimizer.zero_grad()
        model(torch.ones(4, 2) * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        state.batch, state.since = state.batch + 1, state.since + 1
        if hvd.size() == 3 and state.since == 3:
            mark.touch()
        time.sleep(0.02)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, since=0, sizes=[])
train(state)
weights = sum(parameter.double().sum() for parameter in model.parameters()).item()
print("worlds", state.sizes, "here", worlds, "batch", state.batch, "weights", f"{weights:.9f}", flush=True)
