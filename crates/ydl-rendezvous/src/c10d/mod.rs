//! PyTorch's store: what `init_process_group` and torchrun meet at, as torch's own TCPStore serves it.
//!
//! Three dialects are spoken, one by each generation of torch, and the first bytes of a link tell which. What is
//! answered is what torch's newer server (libuv) answers; the older one's answers are a part of these.
//!
//! * `read`: numbers, keys and lists out of bytes, within limits;
//! * `command`: what a client can ask, in each dialect, and `answers`: what it is told;
//! * `keys`: what is stored: values and queues;
//! * `waits`: who waits for what, and `watches`: who is told of every change;
//! * `limits`: how much of all that there may be;
//! * [`store`]: the protocol itself.
//!
//! What may not be here: what the keys mean. To the store they are bytes.

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
