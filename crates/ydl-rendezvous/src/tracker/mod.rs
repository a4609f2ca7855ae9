//! The tracker of XGBoost's workers of any version, on one port. The bytes after the magic number distinguish
//! [`rabit`](crate::rabit) from [`xgboost`](crate::xgboost).

mod combined;
#[cfg(test)]
mod tests_rabit;
#[cfg(test)]
mod tests_xgboost;

pub use combined::Tracker;
