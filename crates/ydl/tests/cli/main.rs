//! The command line: flags, commands, job files and their messages, and the command lines of older systems.

mod arguments;
mod commands;
mod compat;
mod gateway;
mod images;
mod jobfile;
mod misuse;
mod preflight;
mod skein;
