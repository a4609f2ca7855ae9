//! The agent: what runs in every container, and the hands that run a program there.
