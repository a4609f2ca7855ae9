//! DIGEST-MD5 (RFC 2831), as Hadoop uses it for tokens.

mod challenge;
mod cipher;
mod client;
mod layer;

pub(crate) use client::DigestClient;
pub(crate) use layer::DigestLayer;
