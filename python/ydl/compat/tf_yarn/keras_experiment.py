"""KerasExperiment in the older layout."""

from .tensorflow.keras_experiment import KerasExperiment

__all__ = ["KerasExperiment"]
