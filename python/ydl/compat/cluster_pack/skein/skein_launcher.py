"""Launcher in cluster-pack's own layout."""

from ..yarn_launcher import *  # noqa: F401,F403
