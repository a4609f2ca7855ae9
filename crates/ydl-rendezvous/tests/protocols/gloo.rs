//! Horovod's store and the driver of its elastic jobs.

mod driver;
mod hostile;
mod store;
mod worlds;
