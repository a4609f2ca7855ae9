//! The frameworks' own libraries in jobs on this machine.

mod elastic;
mod examples;
mod horovod;
mod jax;
mod mlflow;
mod mxnet;
mod pack;
mod tensorboard;
mod tensorflow;

#[path = "../boards/mod.rs"]
mod boards;
#[path = "../elastic_support/mod.rs"]
mod elastic_support;
#[path = "../home/mod.rs"]
mod home;
