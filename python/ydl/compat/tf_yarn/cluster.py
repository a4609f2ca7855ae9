"""Functions of the cluster in the older layout."""

from typing import Optional, Tuple

from ._task_commons import get_task_key, is_chief, is_evaluator, is_worker, n_try
from .tensorflow.cluster import (
    aggregate_spec,
    is_fake_google_env,
    setup_tf_config,
    start_cluster,
    start_tf_server,
)


def get_task() -> str:
    """Returns the name of this task, `type:id`."""
    return get_task_key().to_kv_str()


def get_task_type(task: Optional[str] = None) -> str:
    """Returns the type of a task, by default of this one."""
    return (task or get_task()).split(":")[0]


def get_task_description() -> Tuple[str, int]:
    """Returns type and number of this task."""
    key = get_task_key()
    return key.type, key.id


__all__ = [
    "aggregate_spec",
    "get_task",
    "get_task_description",
    "get_task_type",
    "is_chief",
    "is_evaluator",
    "is_fake_google_env",
    "is_worker",
    "n_try",
    "setup_tf_config",
    "start_cluster",
    "start_tf_server",
]
