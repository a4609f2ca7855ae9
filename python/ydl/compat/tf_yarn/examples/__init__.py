"""Modules that the examples of tf-yarn import."""
