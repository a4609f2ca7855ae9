"""What TensorBoard reads: the scalar `loss` of twenty steps."""

import time

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def write(directory):
    writer = EventFileWriter(directory)
    for step in range(20):
        values = [summary_pb2.Summary.Value(tag="loss", simple_value=1.0 / (1 + step))]
        summary = summary_pb2.Summary(value=values)
        writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))
    writer.close()
