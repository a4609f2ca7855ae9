"""tf-yarn's API on top of ydl, in both of its layouts, see `docs/moving/tf-yarn.md`."""

from . import cluster, event, mlflow, packaging
from .application import ACLs, Application
from .client import RunFailed, get_safe_experiment_fn
from .constants import KV_CLUSTER_INSTANCES, KV_EXPERIMENT_FN, KV_TF_SESSION_CONFIG
from .metrics import Metrics
from .tensorflow.client import run_on_yarn_legacy as run_on_yarn
from .tensorflow.experiment import Experiment
from .tensorflow.keras_experiment import KerasExperiment
from .topologies import ContainerKey, NodeLabel, TaskSpec, ps_strategy_topology, single_server_topology
from .unsupported import app_logs, skein_global_daemon, standalone_client_mode

__all__ = [
    "ACLs",
    "Application",
    "ContainerKey",
    "Experiment",
    "KV_CLUSTER_INSTANCES",
    "KV_EXPERIMENT_FN",
    "KV_TF_SESSION_CONFIG",
    "KerasExperiment",
    "Metrics",
    "NodeLabel",
    "RunFailed",
    "TaskSpec",
    "app_logs",
    "cluster",
    "event",
    "get_safe_experiment_fn",
    "mlflow",
    "packaging",
    "ps_strategy_topology",
    "run_on_yarn",
    "single_server_topology",
    "skein_global_daemon",
    "standalone_client_mode",
]
