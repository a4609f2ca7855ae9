"""Functions of the cluster in the older layout: the same module as in the newer one, so that a name replaced in one is replaced in
both."""

import sys

from .tensorflow import cluster

sys.modules[__name__] = cluster
