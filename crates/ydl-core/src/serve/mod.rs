//! Values of serving: the autoscaler.

mod autoscale;

pub use autoscale::{Autoscaler, Load, ScaleDecision};
