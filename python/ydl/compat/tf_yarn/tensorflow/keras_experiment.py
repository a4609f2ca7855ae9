from typing import Any, Callable, Dict, NamedTuple, Optional


class KerasExperiment(NamedTuple):
    """A compiled Keras model, and what its `fit` is called with; data come from functions that are called in the task."""

    model: Any
    model_dir: str
    train_params: Dict[str, Any]
    input_data_fn: Optional[Callable[[], Any]]
    target_data_fn: Optional[Callable[[], Any]]
    validation_data_fn: Optional[Callable[[], Any]]
