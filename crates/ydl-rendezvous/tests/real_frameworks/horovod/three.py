"""Runs three rendezvous with an allreduce each, with Horovod for PyTorch or TensorFlow."""

import sys

if sys.argv[1] == "torch":
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)

    def total(number):
        return hvd.allreduce(torch.tensor([number]), op=hvd.Sum).item()

    def gathered(number):
        return hvd.allgather(torch.tensor([number])).tolist()
else:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def total(number):
        return hvd.allreduce(tf.constant([number]), op=hvd.Sum).numpy()[0]

    def gathered(number):
        return hvd.allgather(tf.constant([number])).numpy().tolist()

for _ in range(3):
    hvd.init()
    ranks = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    print("rank", *ranks, "sum", total(float(hvd.rank() + 1)), "all", gathered(hvd.rank()), flush=True)
    hvd.shutdown()
