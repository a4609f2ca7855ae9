"""tf-yarn's PyTorch example: four processes in two containers train one model with DistributedDataParallel."""

import argparse
import logging
import os

from tf_yarn.pytorch import DataLoaderArgs, PytorchExperiment, TaskSpec, run_on_yarn


def experiment_of(model_dir, epochs):
    def train(model, loader, device, rank, tb_writer):
        import torch
        import torch.distributed as dist
        from tf_yarn.pytorch import model_ckpt

        loss_of = torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(1, epochs + 1):
            loader.sampler.set_epoch(epoch)
            for features, labels in loader:
                optimizer.zero_grad()
                loss = loss_of(model(features.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
        print(f"rank {rank} of {dist.get_world_size()} loss {loss.item():.3f}", flush=True)
        norm = sum(float(p.detach().double().pow(2).sum()) for p in model.parameters())
        print(f"weights {norm:.9f}", flush=True)
        if rank == 0:
            hits = total = 0
            with torch.no_grad():
                for features, labels in loader:
                    hits += int((model.module(features).argmax(1) == labels).sum())
                    total += len(labels)
            print(f"accuracy {hits / total:.3f}", flush=True)
            print("saved", model_ckpt.save_ckpt(model_dir, model, optimizer, epochs), flush=True)

    def experiment_fn():
        import importlib.metadata

        import numpy as np
        import torch

        torch.manual_seed(1)
        table = importlib.metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/iris.csv")
        rows = np.loadtxt(table, delimiter=",", skiprows=1, dtype=np.float32)
        features = (rows[:, :4] - rows[:, :4].mean(axis=0)) / rows[:, :4].std(axis=0)
        dataset = torch.utils.data.TensorDataset(torch.from_numpy(features), torch.from_numpy(rows[:, 4]).long())
        model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        return PytorchExperiment(model, train, dataset, DataLoaderArgs(batch_size=9, shuffle=True))

    return experiment_fn


def main():
    parser = argparse.ArgumentParser(description="Train a PyTorch model of irises.")
    add = parser.add_argument
    add("--environment", help="environment of the tasks: archive, virtual environment, or interpreter on all nodes")
    add("--model-dir", default="/tmp/tf-yarn-pytorch", help="a directory shared by all tasks")
    add("--epochs", type=int, default=20)
    args = parser.parse_args()
    model_dir = args.model_dir if "://" in args.model_dir else os.path.abspath(args.model_dir)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s: %(message)s")
    run_on_yarn(
        experiment_of(model_dir, args.epochs),
        {"worker": TaskSpec(memory="2 GiB", vcores=2, instances=2, nb_proc_per_worker=2)},
        pyenv_zip_path=args.environment,
        env={"OMP_NUM_THREADS": "1"},
        name="pytorch-iris",
    )


if __name__ == "__main__":
    main()
