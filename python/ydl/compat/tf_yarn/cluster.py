"""Functions of the cluster in the older layout."""

from ._task_commons import get_task, get_task_description, get_task_type, is_chief, is_evaluator, is_worker, n_try
from .tensorflow.cluster import (
    aggregate_spec,
    is_fake_google_env,
    setup_tf_config,
    start_cluster,
    start_tf_server,
)


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
