//! The brain of ydl.
#![no_std]
extern crate alloc;
