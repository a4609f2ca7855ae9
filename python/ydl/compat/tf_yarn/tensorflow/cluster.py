"""TensorFlow's cluster for hooks. ydl itself sets `TF_CONFIG` and reserves the ports."""

import json
import os
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .. import event
from .._internal import xset_environ
from .._task_commons import (  # noqa: F401
    get_task,
    get_task_description,
    get_task_key,
    get_task_type,
    is_chief,
    is_evaluator,
    is_worker,
    n_try,
)
from ..event import task_name
from ..topologies import SIDE_TASKS


def aggregate_spec(client: Any, all_tasks: Iterable[Any]) -> Dict[str, List[str]]:
    """Waits for the addresses of all tasks, and returns them by type in the order of their numbers."""
    found: Dict[str, List[Tuple[int, str]]] = {}
    for task in all_tasks:
        name = task_name(task)
        kind, _, number = name.partition(":")
        found.setdefault(kind, []).append((int(number), event.wait(client, name + "/init")))
    return {kind: [address for _, address in sorted(rows)] for kind, rows in found.items()}


def start_cluster(host_port: Tuple[str, int], client: Any, all_tasks: Iterable[Any]) -> Dict[str, List[str]]:
    """Reports the address of this task and waits for those of all tasks."""
    key, tasks = get_task_key(), list(all_tasks)
    # In the form in which the caller has its tasks.
    event.init_event(client, key.to_kv_str() if key.to_kv_str() in tasks else key, "{}:{}".format(*host_port))
    return aggregate_spec(client, tasks)


def is_fake_google_env(task_type: str) -> bool:
    """Returns True if `TF_CONFIG` makes TensorFlow use an existing server."""
    return task_type not in ("ps", "evaluator")


_is_fake_google_env = is_fake_google_env


def setup_tf_config(cluster_spec: Dict[str, List[str]]) -> None:
    """Sets `TF_CONFIG` if it is not set."""
    key = get_task_key()
    config = {
        "cluster": {kind: addresses for kind, addresses in cluster_spec.items() if kind not in SIDE_TASKS},
        "environment": "google" if is_fake_google_env(key.type) else "",
        "task": {"type": key.type, "index": key.id},
    }
    xset_environ(TF_CONFIG=json.dumps(config))


def start_tf_server(cluster_spec: Dict[str, List[str]], session_config: Any = None) -> Optional[Any]:
    """Starts TensorFlow's server and returns it. Returns None for parameter servers, which start their own, and for tasks outside
    of the cluster."""
    key = get_task_key()
    if key.type == "ps" or key.type in SIDE_TASKS:
        return None
    import tensorflow as tf

    # Before 1.14, TensorFlow has it in `train` alone.
    server = getattr(tf.train, "Server", None) or tf.distribute.Server
    return server(
        tf.train.ClusterSpec(cluster_spec), job_name=key.type, task_index=key.id, config=session_config, start=True
    )


def own_address() -> str:
    """Returns the address of this task in `TF_CONFIG`."""
    key = get_task_key()
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    addresses = config.get("cluster", {}).get(key.type, [])
    return addresses[key.id] if key.id < len(addresses) else "127.0.0.1:0"


def __getattr__(name: str) -> Any:
    """Resolves `tf`, which the module has in tf-yarn."""
    if name == "tf":
        import tensorflow

        return tensorflow
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))
