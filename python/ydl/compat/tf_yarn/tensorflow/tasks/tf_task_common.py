"""Common functions of TensorFlow's tasks."""

import logging
import platform
from typing import Any

from ..._task_commons import load_experiment_fn, setup_logging

logger = logging.getLogger(__name__)


def prepare() -> None:
    setup_logging()
    import tensorflow as tf

    logger.info("Python %s, TensorFlow %s", platform.python_version(), tf.__version__)


def experiment() -> Any:
    """Calls the experiment function and adds the hooks that report progress."""
    from ..metrics import add_monitoring_hooks

    return add_monitoring_hooks(load_experiment_fn()())


def train_and_evaluate(experiment: Any) -> None:
    """Runs the experiment; TensorFlow reads its role from `TF_CONFIG`."""
    import tensorflow as tf

    from ..keras_experiment import KerasExperiment

    if isinstance(experiment, KerasExperiment):
        raise ValueError(
            "a KerasExperiment requires custom_task_module=\"tf_yarn.tensorflow.tasks.gloo_allred_task\"; "
            "for other strategies convert the model with tf.keras.estimator.model_to_estimator"
        )
    tf.estimator.train_and_evaluate(experiment.estimator, experiment.train_spec, experiment.eval_spec)
