"""Experiment in the older layout."""

from .tensorflow.experiment import Experiment

__all__ = ["Experiment"]
