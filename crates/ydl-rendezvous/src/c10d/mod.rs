//! PyTorch's TCPStore, the rendezvous of `init_process_group` and torchrun.
//!
//! Speaks three dialects, one for each generation of torch, and detects the dialect from the first bytes of a link. The
//! responses are those of torch's libuv server; the older server's responses are a subset.
//!
//! * `reader`: parses numbers, keys and lists, within limits.
//! * `command`: the commands of each dialect; `response`: the encoding of responses.
//! * `key_table`: stores values and queues.
//! * `waits`: links that wait for keys or at a barrier; `watches`: links that are notified of every change.
//! * `limits`: memory limits.
//! * [`store`]: the protocol.
//!
//! Keys are opaque bytes to the store.

mod command;
mod key_table;
mod limits;
mod reader;
mod response;
pub mod store;
mod waits;
mod watches;

pub use limits::C10dLimits;
pub use reader::{KEY_MAX, LIST_MAX, MESSAGE_MAX};
pub use store::C10dStore;
