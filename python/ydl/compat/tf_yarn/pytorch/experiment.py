from typing import Any, Callable, NamedTuple, Optional


class DataLoaderArgs(NamedTuple):
    """Arguments of torch's DataLoader."""

    batch_size: Optional[int] = 1
    num_workers: int = 0
    pin_memory: bool = False
    drop_last: bool = True
    timeout: float = 0
    prefetch_factor: int = 2
    shuffle: bool = False
    persistent_workers: bool = False
    collate_fn: Optional[Callable[..., Any]] = None


class DistributedDataParallelArgs(NamedTuple):
    """Arguments of torch's DistributedDataParallel."""

    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False


class PytorchExperiment(NamedTuple):
    """Model, training function and data. Every process calls `main_fn(model, dataloader, device, rank, tb_writer)` with the model
    in DistributedDataParallel and the process's share of the data. A function of four arguments gets no `tb_writer`. If
    TensorBoard is not installed, the writer discards its input."""

    model: Any
    main_fn: Callable[..., None]
    train_dataset: Any
    dataloader_args: DataLoaderArgs
    tensorboard_hdfs_dir: Optional[str] = None
    ddp_args: Optional[DistributedDataParallelArgs] = None
