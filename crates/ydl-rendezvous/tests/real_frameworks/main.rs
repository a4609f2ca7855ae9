//! Frameworks' own libraries with the protocols of this crate.

mod support;

mod horovod;
mod mxnet;
mod torch;
mod xgboost;
