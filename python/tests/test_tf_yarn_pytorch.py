"""PyTorch's tasks of tf-yarn, with a fake torch that records its calls."""

import importlib
import os
import pickle
import sys
import tempfile
import threading
import types
import unittest
from concurrent import futures
from unittest import mock

from ydl.compat.cluster_pack import filesystem
from ydl.compat.tf_yarn.pytorch import DataLoaderArgs, model_ckpt
from ydl.compat.tf_yarn.pytorch.model_ckpt import find_latest_ckpt


class Iterable:
    """Fake of torch's IterableDataset."""


class Recorder:
    """Base class that records its arguments."""

    def __init__(self, *args, **options):
        self.args, self.options = args, options


class Parallel:
    """Fake of torch's DistributedDataParallel."""


class Model:
    """Fake of a model or an optimizer."""

    def __init__(self, state=None):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def load(file, map_location=None, weights_only=True):
    if weights_only:
        raise pickle.UnpicklingError("only tensors")
    return pickle.load(file)


def torch(**additional):
    """Returns the modules of a fake torch by name."""
    data = {"DataLoader": type("DataLoader", (Recorder,), {}), "IterableDataset": Iterable}
    sampler = {"DistributedSampler": type("DistributedSampler", (Recorder,), {})}
    parts = {
        "torch": {"load": load, "save": lambda state, file: pickle.dump(state, file), "device": str},
        "torch.distributed": {},
        "torch.nn": {},
        "torch.nn.parallel": {"DistributedDataParallel": Parallel},
        "torch.utils": {},
        "torch.utils.data": data,
        "torch.utils.data.distributed": sampler,
        **additional,
    }
    modules = {}
    for name, values in parts.items():
        modules[name] = None if values is None else types.ModuleType(name)
        for key, value in (values or {}).items():
            setattr(modules[name], key, value)
        parent, _, last = name.rpartition(".")
        if parent in modules:
            setattr(modules[parent], last, modules[name])
    return modules


# The module of a task imports torch.
with mock.patch.dict(sys.modules, torch()):
    from ydl.compat.tf_yarn.pytorch.tasks import worker


class PyTorch(unittest.TestCase):
    def test_processes_share_devices_with_gloo_if_there_are_too_few(self):
        self.assertEqual([worker._get_device(local, 2) for local in range(4)], [0, 1, 0, 1])
        self.assertEqual([worker.backend(2, 2), worker.backend(2, 1), worker.backend(1, 0)], ["nccl", "gloo", "gloo"])

    def test_one_process_of_a_container_creates_the_experiment_before_the_others(self):
        alone, created, together = threading.Lock(), threading.Event(), threading.Barrier(2)

        def experiment():
            if created.is_set():
                together.wait(60)
                return "found"
            self.assertTrue(alone.acquire(blocking=False))
            created.set()
            return "created"

        previous = os.getcwd()
        self.addCleanup(os.chdir, previous)
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            with futures.ThreadPoolExecutor(3) as pool:
                results = [pool.submit(worker.first_alone, experiment) for _ in range(3)]
            self.assertEqual(sorted(it.result() for it in results), ["created", "found", "found"])
            os.chdir(previous)

    def test_a_function_of_four_arguments_gets_no_writer(self):
        self.assertTrue(worker.accepts_writer(lambda a, b, c, d, e: None))
        self.assertFalse(worker.accepts_writer(lambda a, b, c, d: None))
        self.assertTrue(worker.accepts_writer(lambda *all: None))

    def test_the_latest_checkpoint_is_that_of_the_latest_epoch(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertIsNone(find_latest_ckpt(os.path.join(directory, "none")))
            for name in ("model_2.pt", "model_10.pt", "model_9.pt", ".model_11.pt.new", "other.pt"):
                open(os.path.join(directory, name), "w").close()
            self.assertEqual(find_latest_ckpt(directory), os.path.join(directory, "model_10.pt"))

    def loader(self, dataset, ranks=(1, 4), **args):
        with mock.patch.dict(sys.modules, torch(webdataset={"WebLoader": type("WebLoader", (Recorder,), {})})):
            return worker._create_dataloader(dataset, DataLoaderArgs(**args), *ranks)

    def test_the_last_short_batch_of_any_dataset_is_dropped(self):
        web = type("WebDataset", (), {"__module__": "webdataset.compat"})()
        for dataset in ([1, 2, 3], Iterable(), web):
            self.assertIs(self.loader(dataset, batch_size=2).options["drop_last"], True)
            with self.assertLogs(worker.logger, "WARNING"):
                self.assertIs(self.loader(dataset, batch_size=2, drop_last=False).options["drop_last"], False)
            # torch rejects it without automatic batching.
            self.assertNotIn("drop_last", self.loader(dataset, batch_size=None).options)

    def test_a_dataset_with_a_length_is_divided_by_a_sampler(self):
        loader = self.loader([1, 2, 3], shuffle=True)
        sampler = {"num_replicas": 4, "rank": 1, "shuffle": True}
        self.assertEqual(loader.options["sampler"].options, sampler)
        # The ranks are those of the process group.
        self.assertIsNone(self.loader([1], ranks=()).options["sampler"].options["rank"])
        self.assertFalse({"shuffle", "prefetch_factor", "persistent_workers", "timeout"} & set(loader.options))
        self.assertEqual(self.loader(Iterable(), num_workers=2).options["prefetch_factor"], 2)

    def test_a_writer_always_exists_and_is_uploaded_only_if_configured(self):
        tensorboard = {"torch.utils.tensorboard": {"SummaryWriter": mock.Mock()}}
        for directory, uploads in ((None, 0), ("hdfs:///board", 1)):
            with mock.patch.dict(sys.modules, torch(**tensorboard)), mock.patch.object(worker, "upload") as upload:
                with worker.UploadingWriter(directory, 3) as writer:
                    writer.add_scalar("loss", 1.0, 1)
                    local = tensorboard["torch.utils.tensorboard"]["SummaryWriter"].call_args[0][0]
                    self.assertTrue(os.path.isdir(local))
            self.assertEqual(upload.call_count, uploads)
            self.assertFalse(os.path.exists(local))
        self.assertEqual(upload.call_args[0][1], "hdfs:///board/worker3")

    def test_a_program_with_a_writer_runs_without_tensorboard(self):
        with mock.patch.dict(sys.modules, torch(**{"torch.utils.tensorboard": None})):
            with worker.UploadingWriter(None, 0) as writer:
                writer.add_scalar("loss", 1.0, 1)
                writer.flush()

    def test_workers_that_read_parquet_files_in_hdfs_are_spawned(self):
        # The JVM of libhdfs does not run in forked processes.
        with mock.patch.dict(sys.modules, torch()):
            dataset = importlib.import_module("ydl.compat.tf_yarn.pytorch.parquet_dataset")
            sys.modules["torch.distributed"].is_available = lambda: False
            for path, rows, is_spawned in (("hdfs://a/b", 100, True), ("viewfs:///b", 100, True), ("/b", 100, False), ("/b", None, True)):
                resolved = mock.patch.object(dataset, "resolve_filesystem_and_path", return_value=(mock.MagicMock(), path))
                with resolved, mock.patch.object(dataset.torch, "distributed", sys.modules["torch.distributed"]):
                    with mock.patch.object(dataset.multiprocessing, "set_start_method") as method:
                        self.assertEqual(len(dataset.ParquetDataset(path, 10, rows)), 10 if rows else 0)
                self.assertEqual(method.mock_calls, [mock.call("spawn", force=True)] if is_spawned else [], path)

    def test_a_checkpoint_is_replaced_even_if_rename_does_not_overwrite(self):
        class Hdfs(filesystem.LocalFileSystem):
            def mv(self, old, new):
                if os.path.exists(new):
                    raise FileExistsError(new)
                os.rename(old, new)

        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(sys.modules, torch()):
            resolved = mock.patch.object(model_ckpt, "resolve_filesystem_and_path", side_effect=lambda path: (Hdfs(), path))
            with resolved:
                model_ckpt.save_ckpt(directory, Model({"w": 1}), Model({"lr": 1}), 3)
                path = model_ckpt.save_ckpt(directory, Model({"w": 2}), Model({"lr": 1}), 3, best=object)
                self.assertEqual(os.listdir(directory), ["model_3.pt"])
                # Values other than tensors are loaded, too.
                model = Model()
                state = model_ckpt.load_latest_ckpt(directory, model, Model(), "cpu")
        self.assertEqual((path, model.state), (os.path.join(directory, "model_3.pt"), {"w": 2}))
        self.assertEqual((state["epoch"], state["best"]), (3, object))


if __name__ == "__main__":
    unittest.main()
