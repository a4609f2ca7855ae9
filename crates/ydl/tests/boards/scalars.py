"""Trains nothing, tells TensorBoard how it goes, and waits for the file `go`."""

import os
import sys
import time

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def scalar(step, tag, value):
    values = [summary_pb2.Summary.Value(tag=tag, simple_value=value)]
    return event_pb2.Event(wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=values))


print("world", os.environ["YDL_WORLD_SIZE"], "rank", os.environ["YDL_RANK"], flush=True)
if os.environ["YDL_RANK"] == "0":
    writer = EventFileWriter(os.path.join(os.environ["YDL_CHECKPOINT"], "train"))
    for step in range(20):
        writer.add_event(scalar(step, "loss", 1.0 / (1 + step)))
    writer.close()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
