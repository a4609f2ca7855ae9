"""Older name of the launcher."""

from .yarn_launcher import *  # noqa: F401,F403
