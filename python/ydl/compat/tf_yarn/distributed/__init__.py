"""Runs any function in any number of processes."""

from .client import run_on_yarn

__all__ = ["run_on_yarn"]
