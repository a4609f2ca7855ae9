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
