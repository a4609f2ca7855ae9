//! HTTP gateway in front of the replicas of a serving role.
//!
//! Values without I/O decide: `route_table` (replicas and settings), `balancer` (picks a replica), `health` (ejects replicas
//! that fail), `retry` (decides if a request may be sent again), `wait_queue` (holds requests for busy replicas), `metrics`,
//! `rate_limit`, `bearer`, `headers`, and `framing` (checks how HTTP/1.1 requests are delimited).
//!
//! Around them: `dispatcher` hands out replicas, `connect` and `pool` hold connections to them, `exchange` follows one
//! request, `request_body` and `response_body` carry bytes, `proxy` forwards a request, `tunnel` an upgraded connection,
//! `server` accepts clients, `tls` and `access_log` serve it, and `gateway` starts everything.

mod access_log;
mod balancer;
mod bearer;
mod client_stream;
mod connect;
mod dispatcher;
mod exchange;
mod framing;
mod gateway;
mod headers;
mod health;
mod metrics;
mod pool;
mod proxy;
mod random;
mod rate_limit;
mod refusal;
mod request_body;
mod response_body;
mod retry;
mod route_table;
mod server;
mod tls;
mod tunnel;
mod wait_queue;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use access_log::{AccessLog, AccessLogError};
pub use bearer::{Bearer, BearerError};
pub use connect::{Connect, Connecting, DirectConnect, ReplicaStream};
pub use gateway::{Gateway, GatewayOptions};
pub use retry::{RetryPolicy, RetryWhen};
pub use route_table::{
    Protocol, QueueLimits, RateLimit, Replica, ReplicaState, RouteTable, RouteTableError, Service,
    Timeouts, parse as parse_route_table,
};
pub use server::ServerLimits;
pub use tls::{TlsFileError, load as load_tls};
