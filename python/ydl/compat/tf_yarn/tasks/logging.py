"""Logging of tasks in the layout of tf-yarn 0.4."""

from .._task_commons import setup_logging as setup

__all__ = ["setup"]
