//! Output for users: text for a terminal or a pipe, and the live table.

mod format;
mod line_prefixer;
mod metrics;
mod paint;
mod print;
mod progress_bar;
mod screen;
mod table;
mod tasks;

pub(crate) use format::{clean, counted_bytes, now, span_since};
pub(crate) use line_prefixer::LinePrefixer;
pub(crate) use metrics::metrics_of_roles;
pub(crate) use paint::Paint;
pub(crate) use print::message;
pub(crate) use print::{print, print_json};
pub(crate) use progress_bar::ProgressBar;
pub(crate) use screen::Screen;
pub(crate) use table::{Cell, table};
pub(crate) use tasks::{live_table, sizes_of_roles, task_table};
