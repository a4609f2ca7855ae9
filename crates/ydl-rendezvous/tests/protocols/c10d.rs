//! PyTorch's store.

mod hostile;
mod store;
