//! What people see: text for a terminal or a pipe, and the live table.

mod metrics;
mod out;
mod paint;
mod screen;
mod table;
mod tasks;
mod words;

pub use metrics::metrics_of_roles;
pub use out::{json, print, tell};
pub use paint::Paint;
pub use screen::Screen;
pub use table::{Cell, table};
pub use tasks::{live, sizes_of_roles, tasks};
pub use words::{clean, counted_bytes, now, span_since};
