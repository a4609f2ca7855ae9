//! Output for users: text for a terminal or a pipe, and the live table.

mod format;
mod lines;
mod metrics;
mod paint;
mod print;
mod screen;
mod table;
mod tasks;

pub use format::{clean, counted_bytes, now, span_since};
pub use lines::LinePrefixer;
pub use metrics::metrics_of_roles;
pub use paint::Paint;
pub use print::{message, print, print_json};
pub use screen::Screen;
pub use table::{Cell, table};
pub use tasks::{live_table, sizes_of_roles, task_table};
