//! Exclusive lock of one device.
//!
//! A lock is a socket bound to a name in Linux's abstract namespace. Only one process of the machine can bind a name
//! there, it is released when the process exits, and it needs no directory writable by all users. The lock is advisory:
//! a process that computes without it is detected, not prevented.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

#[derive(Debug)]
pub(super) struct DeviceLock {
    /// Never accepts a connection: being bound is the lock.
    _socket: UnixListener,
}

impl DeviceLock {
    /// Locks a device; returns none if another process has it.
    pub(super) fn take(key: &str) -> io::Result<Option<DeviceLock>> {
        let name = SocketAddr::from_abstract_name(format!("ydl/gpu/{key}"))?;
        match UnixListener::bind_addr(&name) {
            Ok(_socket) => Ok(Some(DeviceLock { _socket })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}
