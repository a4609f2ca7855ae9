"""Programs of tasks."""
