"""Where cluster-pack itself has its launcher."""

from ..yarn_launcher import *  # noqa: F401,F403
