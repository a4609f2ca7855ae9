"""Process of PyTorch: joins the process group, wraps the model, selects its data, and trains."""

import fcntl
import inspect
import logging
import os
import shutil
import tempfile
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from ..._task_commons import load_experiment_fn, setup_logging, use_spawn
from ...lifecycle import run_task
from ..experiment import DataLoaderArgs, PytorchExperiment

logger = logging.getLogger(__name__)


def backend(processes: int, gpus: int) -> str:
    """Returns NCCL if each process of a container has its own GPU, otherwise Gloo."""
    return "nccl" if 0 < processes <= gpus else "gloo"


def _get_device(worker_id: int, gpus: Optional[int] = None) -> int:
    """Returns the device of a process. Processes share devices if there are too few."""
    return worker_id % (torch.cuda.device_count() if gpus is None else gpus)


def device_name(local_rank: int) -> str:
    return "cuda:{}".format(_get_device(local_rank)) if torch.cuda.is_available() else "cpu"


def _create_dataloader(
    dataset: Any, dataloader_args: DataLoaderArgs, rank: Optional[int] = None, world: Optional[int] = None
) -> Any:
    """Returns a loader of this rank's data, by a sampler or by an iterable dataset that divides itself. Without `rank` and `world`
    they are those of the process group."""
    args = dataloader_args
    given = args._asdict()
    shuffle = given.pop("shuffle")
    if args.batch_size is None:
        # torch rejects `drop_last` without automatic batching.
        del given["drop_last"]
    elif not args.drop_last:
        logger.warning("drop_last is off: ranks with different numbers of batches deadlock")
    if not given["num_workers"]:
        # Newer versions of torch reject these without worker processes.
        for name in ("prefetch_factor", "persistent_workers", "timeout"):
            given.pop(name)
    if type(dataset).__module__.split(".")[0] == "webdataset":
        import webdataset

        return webdataset.WebLoader(dataset, **given)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return torch.utils.data.DataLoader(dataset, **given)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=shuffle)
    return torch.utils.data.DataLoader(dataset, sampler=sampler, **given)


def accepts_writer(main_fn: Any) -> bool:
    """Returns True if the user's function accepts a TensorBoard writer."""
    try:
        parameters = inspect.signature(main_fn).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters) >= 5


def first_alone(function: Callable[[], Any]) -> Any:
    """Calls a function in all processes of a container: in one process first, and in the others together once it has returned
    there. They share a directory, and the function may download data into it."""
    with open(".ydl-first", "ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        try:
            if os.fstat(first.fileno()).st_size == 0:
                result = function()
                os.write(first.fileno(), b"1")
                return result
        finally:
            # Processes that the function forked have the lock, too.
            fcntl.flock(first, fcntl.LOCK_UN)
    return function()


def train(local_rank: int) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    dist.init_process_group(backend(processes, torch.cuda.device_count()), rank=rank, world_size=world)
    logger.info("rank %s of %s", rank, world)
    experiment: PytorchExperiment = first_alone(load_experiment_fn())
    device = device_name(local_rank)
    if device != "cpu":
        torch.cuda.set_device(device)
    options = experiment.ddp_args._asdict() if experiment.ddp_args else {}
    model = experiment.model.to(device)
    if any(parameter.requires_grad for parameter in model.parameters()):
        model = DistributedDataParallel(model, device_ids=None if device == "cpu" else [device], **options)
    loader = _create_dataloader(experiment.train_dataset, experiment.dataloader_args, rank, world)
    with UploadingWriter(experiment.tensorboard_hdfs_dir, rank) as writer:
        arguments = [model, loader, device, rank] + ([writer] if accepts_writer(experiment.main_fn) else [])
        experiment.main_fn(*arguments)
    dist.destroy_process_group()


class NullWriter:
    """Writer that discards everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None


class UploadingWriter:
    """Context manager for TensorBoard's writer. At exit uploads its files to `<directory>/worker<rank>`, if a directory is given.
    Without TensorBoard the writer discards its input."""

    def __init__(self, directory: Optional[str], rank: int) -> None:
        self.directory, self.rank = directory, rank

    def __enter__(self) -> Any:
        self.local = tempfile.mkdtemp(prefix="tensorboard-")
        try:
            from torch.utils.tensorboard import SummaryWriter

            self.writer: Any = SummaryWriter(self.local)
        except ImportError as missing:
            log = logger.warning if self.directory else logger.info
            log("no files for TensorBoard are written: %s", missing)
            self.writer = NullWriter()
        except BaseException:
            shutil.rmtree(self.local, ignore_errors=True)
            raise
        return self.writer

    def __exit__(self, *_: object) -> None:
        try:
            self.writer.close()
            if self.directory:
                upload(self.local, os.path.join(self.directory, "worker{}".format(self.rank)))
        except Exception as failure:  # errors of TensorBoard must not end the training
            logger.warning("cannot upload TensorBoard's files to %s: %s", self.directory, failure)
        finally:
            shutil.rmtree(self.local, ignore_errors=True)


def upload(local: str, to: str) -> None:
    """Copies the files of a directory to a local directory or to a file system of fsspec."""
    from ....cluster_pack.filesystem import resolve_filesystem_and_path

    files, path = resolve_filesystem_and_path(to)
    files.makedirs(path, exist_ok=True)
    for name in sorted(os.listdir(local)):
        files.put(os.path.join(local, name), os.path.join(path, name))


def main() -> None:
    setup_logging()
    use_spawn()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    run_task(lambda: train(local))


if __name__ == "__main__":
    main()
