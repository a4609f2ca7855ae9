"""The launcher's older name."""

from .yarn_launcher import *  # noqa: F401,F403
