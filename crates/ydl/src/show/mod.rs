//! Output for users: text for a terminal or a pipe, and the live table.

mod format;
mod metrics;
mod paint;
mod print;
mod screen;
mod table;
mod tasks;

pub use format::{clean, counted_bytes, now, span_since};
pub use metrics::metrics_of_roles;
pub use paint::Paint;
pub use print::{json, print, tell};
pub use screen::Screen;
pub use table::{Cell, table};
pub use tasks::{live, sizes_of_roles, tasks};
