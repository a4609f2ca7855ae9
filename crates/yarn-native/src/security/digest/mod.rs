//! DIGEST-MD5, the part of RFC 2831 that Hadoop uses to prove a token.

mod challenge;
mod cipher;
mod layer;
mod proof;

pub(crate) use layer::DigestLayer;
pub(crate) use proof::DigestClient;
