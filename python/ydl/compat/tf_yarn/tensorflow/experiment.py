from typing import Any, NamedTuple


class Experiment(NamedTuple):
    """An Estimator, and how it is trained and evaluated."""

    estimator: Any
    train_spec: Any
    eval_spec: Any

    @property
    def config(self) -> Any:
        """The estimator's configuration."""
        return self.estimator.config
