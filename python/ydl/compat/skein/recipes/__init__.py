"""Recipes of skein: programs that publish their address in the store."""
