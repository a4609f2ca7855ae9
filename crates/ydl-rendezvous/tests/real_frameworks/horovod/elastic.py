"""Trains in a changing world until it has been in WORLDS worlds and the world has two processes.

In each world it prints a line after some steps and creates a file with the prefix MARK. With DROP_FIRST_NOTIFICATION=1, rank 0
registers its endpoint and trains only after a notification that has no effect.
"""

import os
import pathlib
import threading
import time

import horovod.common.elastic
import horovod.torch as hvd
import torch

torch.set_num_threads(1)
torch.manual_seed(1)
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.001), named_parameters=model.named_parameters()
)
here = []


@hvd.elastic.run
def train(state):
    here.append(hvd.size())
    state.sizes, state.since = state.sizes + [hvd.size()], 0
    while len(state.sizes) < int(os.environ["WORLDS"]) or hvd.size() != 2 or state.since < 6:
        optimizer.zero_grad()
        model(torch.ones(4, 2) * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        state.batch, state.since = state.batch + 1, state.since + 1
        time.sleep(0.02)
        state.commit()
        if state.since == 3:
            print(f"world of {hvd.size()} as rank {hvd.rank()}", flush=True)
            if "MARK" in os.environ:
                pathlib.Path(f"{os.environ['MARK']}-{hvd.size()}").touch()


if os.environ.get("DROP_FIRST_NOTIFICATION") == "1":
    manager, notified = horovod.common.elastic.notification_manager, threading.Event()
    handle = manager.handle_hosts_updated

    def handle_and_signal(*arguments):
        handle(*arguments)
        notified.set()

    manager.handle_hosts_updated = handle_and_signal
    manager.init()
    if hvd.rank() == 0:
        notified.wait()

state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, since=0, sizes=[])
train(state)
weights = sum(parameter.double().sum() for parameter in model.parameters()).item()
print("here", here)
print("worlds", state.sizes, "batch", state.batch, "weights", f"{weights:.9f}", flush=True)
