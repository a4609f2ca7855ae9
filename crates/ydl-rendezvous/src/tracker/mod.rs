//! The tracker at which XGBoost's workers meet, whatever their version: one port, and what comes after the magic number
//! tells [`rabit`](crate::rabit) from [`xgboost`](crate::xgboost).

mod detect;
#[cfg(test)]
mod tests_rabit;
#[cfg(test)]
mod tests_xgboost;

pub use detect::Tracker;
