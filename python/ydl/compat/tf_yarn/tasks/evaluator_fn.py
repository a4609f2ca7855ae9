"""Evaluator in the layout of tf-yarn 0.4."""

from ..tensorflow.tasks.evaluator_task import evaluate, evaluator_fn

__all__ = ["evaluate", "evaluator_fn"]
