"""`run_on_yarn` for TensorFlow, in the signatures of both tf-yarn layouts."""

from typing import Any, Callable, Dict, Optional, Tuple

from .. import client
from ..metrics import Metrics
from ..topologies import ContainerKey, TaskSpecs, single_server_topology

Key = Callable[[str], Any]


@client.with_run_on_yarn_signature
def run_on_yarn(*args: Any, **options: Any) -> Metrics:
    """Runs an experiment. Accepts the newer signature `run_on_yarn(experiment_fn, task_specs=…, *, pyenv_zip_path=None, …)`
    and the older one `run_on_yarn(pyenv_zip_path, experiment_fn, task_specs=…, *, …)`. The options are those of
    :func:`ydl.compat.tf_yarn.client.run_on_yarn`."""
    return _run(args, options, ContainerKey.from_kv_str)


@client.with_run_on_yarn_signature
def run_on_yarn_legacy(*args: Any, **options: Any) -> Metrics:
    """`run_on_yarn` of the older layout: with positional arguments the keys of metrics are `"type:id"`."""
    return _run(args, options, str)


def _run(args: Tuple[Any, ...], options: Dict[str, Any], key: Key) -> Metrics:
    """Normalizes both signatures. `key` converts the keys of metrics if all arguments are named."""
    names: Tuple[str, ...] = ()
    if args and (callable(args[0]) or "pyenv_zip_path" in options):
        names, key = ("experiment_fn", "task_specs"), ContainerKey.from_kv_str
    elif args:
        names, key = ("pyenv_zip_path", "experiment_fn", "task_specs"), str
    if len(args) > len(names):
        raise TypeError("run_on_yarn takes {} positional arguments but {} were given".format(len(names), len(args)))
    for name, value in zip(names, args):
        if name in options:
            raise TypeError("run_on_yarn got multiple values for argument `{}`".format(name))
        options[name] = value
    experiment_fn = options.pop("experiment_fn", None)
    if not callable(experiment_fn):
        raise TypeError("experiment_fn is `{!r}`, expected a function without arguments".format(experiment_fn))
    specs: Optional[TaskSpecs] = options.pop("task_specs", None)
    specs = single_server_topology() if specs is None else specs
    return client.run_on_yarn(experiment_fn, specs, framework="tensorflow", **{"key": key, **options})
