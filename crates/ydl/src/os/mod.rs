//! The one room that may call the operating system unsafely, and the safe doors to it.
