"""What tasks run."""
