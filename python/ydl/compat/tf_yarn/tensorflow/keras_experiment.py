from typing import Any, Callable, Dict, NamedTuple, Optional


class KerasExperiment(NamedTuple):
    """Compiled Keras model, and the arguments of its `fit`. The task calls the functions to get the data."""

    model: Any
    model_dir: str
    train_params: Dict[str, Any]
    input_data_fn: Optional[Callable[[], Any]]
    target_data_fn: Optional[Callable[[], Any]]
    validation_data_fn: Optional[Callable[[], Any]]
