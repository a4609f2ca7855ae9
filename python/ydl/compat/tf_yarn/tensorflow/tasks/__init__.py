"""What tasks run: one module for each kind, started with `python -m`."""
