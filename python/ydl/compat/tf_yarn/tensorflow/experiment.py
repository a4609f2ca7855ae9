from typing import Any, NamedTuple


class Experiment(NamedTuple):
    """Estimator with its training and evaluation specs."""

    estimator: Any
    train_spec: Any
    eval_spec: Any

    @property
    def config(self) -> Any:
        """Configuration of the estimator."""
        return self.estimator.config
