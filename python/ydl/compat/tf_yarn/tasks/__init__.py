"""Tasks in the older layout."""
