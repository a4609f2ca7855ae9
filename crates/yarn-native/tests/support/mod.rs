//! Support of tests on real clusters.

// Each test binary uses a part of this module.
#![allow(dead_code)]

pub mod client;
pub mod kerberos;
pub mod master;
