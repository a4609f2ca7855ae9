//! Exceptions returned by servers.

use std::fmt;

use crate::proto::common::RpcResponseHeaderProto;
use crate::proto::common::rpc_response_header_proto::RpcErrorCodeProto;

/// Maximum message length; longer messages are truncated.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a class name.
const CLASS_BYTES_MAX: usize = 256;
/// Package prefix of Hadoop's classes.
const HADOOP: &str = "org.apache.hadoop.";
/// Class that wraps other exceptions.
const WRAPPER: &str = "org.apache.hadoop.yarn.exceptions.YarnException";

/// A server's exception: its Java class and message, without the stack trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Fully qualified name of the Java class.
    pub class: String,
    /// The message.
    pub message: String,
    kind: ExceptionKind,
}

/// Meaning of an exception for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// The server is standby.
    Standby,
    /// The call may succeed later on the same server.
    Retriable,
    /// The server is overloaded.
    Busy,
    /// The server does not have the method: it is older or newer.
    NoSuchMethod,
    /// The server does not have the protocol.
    NoSuchProtocol,
    /// The server has another version of the protocol.
    VersionMismatch,
    /// Permission denied.
    AccessControl,
    /// The token is unknown, cancelled or expired.
    InvalidToken,
    /// The handshake failed.
    Sasl,
    /// The ApplicationMaster is not registered: it must register again and repeat all its requests.
    MasterNotRegistered,
    /// The attempt has ended; its ApplicationMaster should exit.
    AttemptNotFound,
    /// The ApplicationMaster's request is out of order, or it registered twice.
    InvalidMasterRequest,
    /// No such application.
    ApplicationNotFound,
    /// No such container.
    ContainerNotFound,
    /// A resource request that cannot be satisfied; nothing of its request was applied.
    InvalidAsk,
    /// The NodeManager is starting; the call may succeed later.
    NodeNotReady,
    /// The NodeManager rejected the container.
    InvalidContainer,
    /// File or directory not found.
    FileNotFound,
    /// Any other exception; see its class and message.
    Other,
}

impl Exception {
    pub(crate) fn new(class: &str, message: &str, detail: Option<RpcErrorCodeProto>) -> Self {
        let class = truncate(class, CLASS_BYTES_MAX).to_owned();
        // Java appends the stack trace to the message; its frames begin with a tab.
        let text = message.split("\n\tat ").next().unwrap_or_default().trim();
        let kind = kind_of(effective_class(&class, text), detail);
        Self { class, message: truncate(text, MESSAGE_BYTES_MAX).to_owned(), kind }
    }

    pub(crate) fn of_header(header: &RpcResponseHeaderProto) -> Self {
        // The field's getter would return the first enum value if missing.
        let detail = header.error_detail.and_then(|code| RpcErrorCodeProto::try_from(code).ok());
        Self::new(header.exception_class_name(), header.error_msg(), detail)
    }

    /// Returns the meaning for the caller.
    pub fn kind(&self) -> ExceptionKind {
        self.kind
    }

    /// Returns the class name without its package.
    pub fn short_class(&self) -> &str {
        self.class.rsplit(['.', '$']).next().unwrap_or(&self.class)
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message.is_empty(), self.class.is_empty()) {
            (true, true) => f.write_str("the server gave no reason"),
            (true, false) => write!(f, "`{}`", self.short_class()),
            (false, true) => f.write_str(&self.message),
            (false, false) => write!(f, "{} (`{}`)", self.message, self.short_class()),
        }
    }
}

fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns the effective class. The ResourceManager wraps internal exceptions, and the message then
/// begins with the name of the wrapped class.
fn effective_class<'a>(class: &'a str, message: &'a str) -> &'a str {
    if class != WRAPPER || !message.starts_with(HADOOP) {
        return class;
    }
    let end = message.find([':', '\n']).unwrap_or(message.len());
    match &message[..end] {
        inside if inside.len() <= CLASS_BYTES_MAX && !inside.contains(' ') => inside,
        _ => class,
    }
}

fn kind_of(class: &str, detail: Option<RpcErrorCodeProto>) -> ExceptionKind {
    use ExceptionKind as Kind;
    match class.strip_prefix(HADOOP).unwrap_or(class) {
        "ipc.StandbyException" => Kind::Standby,
        "ipc.RetriableException" => Kind::Retriable,
        "ipc.RpcNoSuchMethodException" => Kind::NoSuchMethod,
        "ipc.RpcNoSuchProtocolException" => Kind::NoSuchProtocol,
        "ipc.RPC$VersionMismatch" => Kind::VersionMismatch,
        "security.AccessControlException" | "security.authorize.AuthorizationException" => {
            Kind::AccessControl
        }
        "security.token.SecretManager$InvalidToken" => Kind::InvalidToken,
        "javax.security.sasl.SaslException" => Kind::Sasl,
        "yarn.exceptions.ApplicationMasterNotRegisteredException" => Kind::MasterNotRegistered,
        "yarn.exceptions.ApplicationAttemptNotFoundException" => Kind::AttemptNotFound,
        "yarn.exceptions.InvalidApplicationMasterRequestException" => Kind::InvalidMasterRequest,
        "yarn.exceptions.ApplicationNotFoundException" => Kind::ApplicationNotFound,
        "yarn.exceptions.ContainerNotFoundException" => Kind::ContainerNotFound,
        "yarn.exceptions.InvalidResourceRequestException"
        | "yarn.exceptions.InvalidLabelResourceRequestException"
        | "yarn.exceptions.InvalidResourceBlacklistRequestException"
        | "yarn.exceptions.InvalidContainerReleaseException" => Kind::InvalidAsk,
        "yarn.exceptions.NMNotYetReadyException" => Kind::NodeNotReady,
        "yarn.exceptions.InvalidContainerException" => Kind::InvalidContainer,
        "java.io.FileNotFoundException" => Kind::FileNotFound,
        _ => match detail {
            Some(RpcErrorCodeProto::ErrorNoSuchMethod) => Kind::NoSuchMethod,
            Some(RpcErrorCodeProto::ErrorNoSuchProtocol) => Kind::NoSuchProtocol,
            Some(RpcErrorCodeProto::ErrorRpcVersionMismatch) => Kind::VersionMismatch,
            Some(RpcErrorCodeProto::ErrorRpcServer) => Kind::Busy,
            _ => Kind::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: &str, message: &str) -> Exception {
        Exception::new(class, message, None)
    }

    #[test]
    fn stack_trace_is_removed_and_class_is_classified() {
        let exception = check(
            "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException",
            "Application with id 'application_1_0001' doesn't exist in RM.\nReally.\n\tat org.a.b(C.java:1)\n\tat d",
        );
        assert_eq!(exception.kind(), ExceptionKind::ApplicationNotFound);
        let expected = "Application with id 'application_1_0001' doesn't exist in RM.\nReally. \
                        (`ApplicationNotFoundException`)";
        assert_eq!(exception.to_string(), expected);
        let nested = check("org.apache.hadoop.security.token.SecretManager$InvalidToken", "");
        assert_eq!(nested.kind(), ExceptionKind::InvalidToken);
        assert_eq!(nested.to_string(), "`InvalidToken`");
    }

    #[test]
    fn wrapped_exception_is_classified_only_at_the_start_of_the_message() {
        let inside = |message: &str| check(WRAPPER, message).kind();
        let denied = "org.apache.hadoop.security.AccessControlException: User bob may not";
        assert_eq!(inside(denied), ExceptionKind::AccessControl);
        assert_eq!(inside("no: org.apache.hadoop.security"), ExceptionKind::Other);
        assert_eq!(inside("org.apache.hadoop. says: no"), ExceptionKind::Other);
        let other = check("x.Unknown", denied).kind();
        assert_eq!(other, ExceptionKind::Other);
    }

    #[test]
    fn error_detail_classifies_unknown_classes() {
        let busy = Exception::new("x.Unknown", "full", Some(RpcErrorCodeProto::ErrorRpcServer));
        assert_eq!(busy.kind(), ExceptionKind::Busy);
        assert_eq!(check("x.Unknown", "full").kind(), ExceptionKind::Other);
    }

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        let exception = check("x", &"é".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(exception.message.len(), MESSAGE_BYTES_MAX);
        assert_eq!(check("", "").to_string(), "the server gave no reason");
    }
}
