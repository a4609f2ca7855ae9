"""Package of the launcher in cluster-pack."""
