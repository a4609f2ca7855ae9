//! Values of serving: the route table that gateways get, and the autoscaler.

mod autoscale;
mod routes;

pub use autoscale::{Autoscaler, Load, ScaleDecision};
pub use routes::{Route, RouteState, RouteTable};
