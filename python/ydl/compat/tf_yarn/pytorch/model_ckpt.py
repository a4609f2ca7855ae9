"""Checkpoints of a model and its optimizer: `model_<epoch>.pt` in a local directory or in a file system of fsspec."""

import inspect
import logging
import os
import re
from typing import Any, Dict, Optional

from ...cluster_pack.filesystem import resolve_filesystem_and_path

logger = logging.getLogger(__name__)


def find_latest_ckpt(model_dir: str) -> Optional[str]:
    """Returns the checkpoint of the latest epoch."""
    files, path = resolve_filesystem_and_path(model_dir)
    if not files.exists(path):
        return None
    found = {}
    for name in files.ls(path, detail=False):
        match = re.match(r"^model_(\d+)\.pt$", os.path.basename(str(name)))
        if match:
            found[int(match.group(1))] = os.path.basename(str(name))
    return os.path.join(model_dir, found[max(found)]) if found else None


def load_latest_ckpt(model_dir: str, model: Any, optimizer: Any, device: Any) -> Optional[Dict[Any, Any]]:
    """Loads the latest checkpoint into model and optimizer. Returns its content, or None."""
    latest = find_latest_ckpt(model_dir)
    if latest is None:
        logger.info("there is no checkpoint in %s", model_dir)
        return None
    return load_ckpt(latest, model, optimizer, device)


def load_ckpt(model_ckpt_path: str, model: Any, optimizer: Any, device: Any) -> Dict[Any, Any]:
    """Loads a checkpoint. It is a pickle and must come from a trusted source."""
    import torch

    files, path = resolve_filesystem_and_path(model_ckpt_path)
    # `save_ckpt` accepts any value; torch since 2.6 reads only tensors by default.
    trusted = {"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}
    with files.open(path, "rb") as file:
        state = torch.load(file, map_location=torch.device(device), **trusted)
    _unwrap(model).load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state


def save_ckpt(model_dir: str, model: Any, optimizer: Any, epoch: int, **kwargs: Any) -> str:
    """Saves the state after an epoch and additional values, atomically."""
    import torch

    state = {"model": _unwrap(model).state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, **kwargs}
    files, path = resolve_filesystem_and_path(model_dir)
    files.makedirs(path, exist_ok=True)
    name = "model_{}.pt".format(epoch)
    temporary = os.path.join(path, ".{}.new".format(name))
    with files.open(temporary, "wb") as file:
        torch.save(state, file)
    final = os.path.join(path, name)
    if files.exists(final):
        # An earlier try may have written it. HDFS does not replace files on rename.
        files.rm(final)
    files.mv(temporary, final)
    return os.path.join(model_dir, name)


def _unwrap(model: Any) -> Any:
    """Returns the model inside DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel) else model
