//! The wire: TLS with the job certificate, HTTP with limits, and the messages.
