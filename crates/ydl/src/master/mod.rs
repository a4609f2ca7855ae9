//! The master: the shell around the core.
