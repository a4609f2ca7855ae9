"""Dataset of Parquet files, divided over the ranks."""

import multiprocessing
from typing import Any, Iterator, List, Optional

import torch
from torch.utils.data import IterableDataset

from ...cluster_pack.filesystem import HADOOP_SCHEMES, resolve_filesystem_and_path

HADOOP_ADDRESSES = tuple(scheme + "://" for scheme in HADOOP_SCHEMES)


class ParquetDataset(IterableDataset):  # type: ignore[misc]
    """Batches of the files in a directory. The batches of a file are divided evenly over the ranks. The rest is dropped, so that
    all ranks have the same number of steps."""

    def __init__(
        self,
        dataset_path: str,
        batch_size: int,
        num_samples: Optional[int] = None,
        columns: Optional[List[str]] = None,
    ) -> None:
        self.fs, path = resolve_filesystem_and_path(dataset_path)
        if num_samples is None or dataset_path.startswith(HADOOP_ADDRESSES):
            # As in tf-yarn, which counts rows in processes. The workers of a loader read the files, and the JVM of libhdfs does
            # not run in forked ones.
            multiprocessing.set_start_method("spawn", force=True)
        self.columns, self.batch_size = columns, batch_size
        self.paths = sorted(str(name) for name in self.fs.ls(path, detail=False) if str(name).endswith(".parquet"))
        self.num_samples = num_samples or sum(self._rows(name) for name in self.paths)
        initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if initialized else 0
        self.num_workers = torch.distributed.get_world_size() if initialized else 1

    def _rows(self, path: str) -> int:
        import pyarrow.parquet as parquet

        with self.fs.open(path, "rb") as file:
            return int(parquet.ParquetFile(file).metadata.num_rows)

    def _batches(self, path: str) -> List[Any]:
        import pyarrow.parquet as parquet

        with self.fs.open(path, "rb") as file:
            return list(parquet.ParquetFile(file).iter_batches(batch_size=self.batch_size, columns=self.columns))

    def __iter__(self) -> Iterator[Any]:
        for path in self.paths:
            batches = self._batches(path)
            batches = [batch for batch in batches if len(batch) == self.batch_size]
            share = len(batches) // self.num_workers
            yield from batches[self.rank * share : (self.rank + 1) * share]

    def __len__(self) -> int:
        return self.num_samples // self.batch_size // self.num_workers
