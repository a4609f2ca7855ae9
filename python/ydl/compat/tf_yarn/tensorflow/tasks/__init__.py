"""Programs of tasks, one module for each kind, run with `python -m`."""
