//! Jobs on this machine with the real frameworks.

mod elastic;
mod examples;
mod horovod;
mod jax;
mod mlflow;
mod mxnet;
mod pack;
mod tensorboard;
mod tensorflow;
