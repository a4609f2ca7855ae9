"""`run_on_yarn` for any function whose one argument is its local rank."""

from typing import Any, Callable, Optional

from .. import client
from ..metrics import Metrics
from ..topologies import TaskSpecs

TASK = "tf_yarn.distributed.task"


@client.with_run_on_yarn_signature
def run_on_yarn(
    experiment_fn: Callable[[int], Any],
    task_specs: TaskSpecs,
    *,
    custom_task_module: Optional[str] = None,
    **options: Any,
) -> Metrics:
    """Calls the function in every process of every task. The options are those of
    :func:`ydl.compat.tf_yarn.client.run_on_yarn`."""
    module = custom_task_module or TASK
    return client.run_on_yarn(experiment_fn, task_specs, custom_task_module=module, framework="none", **options)
