"""Where cluster-pack itself has its launcher."""
