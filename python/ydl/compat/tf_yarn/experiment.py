"""Where the older layout has it."""

from .tensorflow.experiment import Experiment

__all__ = ["Experiment"]
