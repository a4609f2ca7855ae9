"""`run_on_yarn` for PyTorch."""

from typing import Any, Callable, Optional

from .. import client
from ..metrics import Metrics
from ..topologies import TaskSpecs

WORKER = "tf_yarn.pytorch.tasks.worker"


@client.with_run_on_yarn_signature
def run_on_yarn(
    experiment_fn: Callable[[], Any],
    task_specs: TaskSpecs,
    *,
    custom_task_module: Optional[str] = None,
    **options: Any,
) -> Metrics:
    """Trains a PytorchExperiment with `nb_proc_per_worker` processes per task. The options are those of
    :func:`ydl.compat.tf_yarn.client.run_on_yarn`."""
    module = custom_task_module or WORKER
    return client.run_on_yarn(experiment_fn, task_specs, custom_task_module=module, framework="pytorch", **options)
