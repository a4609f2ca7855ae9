"""Train the same network with MXNet's older Module API: a symbol, an iterator of batches, and `fit`."""

import mxnet as mx

import argparse
import os

from train import SEED, digits


def network():
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=128, name="hidden")
    scores = mx.sym.FullyConnected(mx.sym.Activation(hidden, act_type="relu"), num_hidden=10, name="scores")
    return mx.sym.SoftmaxOutput(scores, name="softmax")


def main():
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=12)
    add("--kv-store", default="dist_sync" if "DMLC_ROLE" in os.environ else "local")
    args = parser.parse_args()

    mx.random.seed(SEED)
    kv = mx.kv.create(args.kv_store)
    print(f"rank {kv.rank} of {kv.num_workers}", flush=True)
    (images, labels), (test_images, test_labels) = digits()
    # The same number of batches for all workers, because `dist_sync` synchronizes each batch.
    count = len(images) // kv.num_workers
    own = slice(kv.rank * count, (kv.rank + 1) * count)
    batches = mx.io.NDArrayIter(images[own], labels[own], 64 // kv.num_workers, last_batch_handle="discard")
    module = mx.mod.Module(network())
    module.fit(batches, num_epoch=args.epochs, kvstore=kv, optimizer="sgd", initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    accuracy = module.score(mx.io.NDArrayIter(test_images, test_labels, 27), "acc")[0][1]
    weights = sum(float(one.sum().asscalar()) for one in module.get_params()[0].values())
    print(f"test accuracy {accuracy:.3f}", flush=True)
    print(f"weights {weights:.5f}", flush=True)


if __name__ == "__main__":
    main()
