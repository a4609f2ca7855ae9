"""Experiments with TensorFlow, which is imported in tasks only."""

from ..client import RunFailed, get_safe_experiment_fn
from ..metrics import Metrics
from ..topologies import NodeLabel, TaskSpec, ps_strategy_topology, single_server_topology
from .client import run_on_yarn
from .experiment import Experiment
from .keras_experiment import KerasExperiment

__all__ = [
    "Experiment",
    "KerasExperiment",
    "Metrics",
    "NodeLabel",
    "RunFailed",
    "TaskSpec",
    "get_safe_experiment_fn",
    "ps_strategy_topology",
    "run_on_yarn",
    "single_server_topology",
]
