"""Where the older layout has the tasks."""
