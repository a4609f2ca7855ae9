//! What a server says when it says no.

use std::fmt;

use crate::proto::common::RpcResponseHeaderProto;
use crate::proto::common::rpc_response_header_proto::RpcErrorCodeProto;

/// Longer messages are cut: they are for people.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Longer names are no classes.
const CLASS_BYTES_MAX: usize = 256;
/// What class names of Hadoop begin with.
const HADOOP: &str = "org.apache.hadoop.";
/// What wraps others.
const WRAPPER: &str = "org.apache.hadoop.yarn.exceptions.YarnException";

/// A server's exception: its Java class and its message, without the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The whole name of the Java class.
    pub class: String,
    /// The first lines of what it said.
    pub message: String,
    kind: ExceptionKind,
}

/// What an exception means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// This server stands by while another is active.
    Standby,
    /// The same server may take the call a little later.
    Retriable,
    /// The server has too much to do.
    Busy,
    /// The server is too old, or too new, for the method.
    NoSuchMethod,
    /// The server does not speak the protocol.
    NoSuchProtocol,
    /// The server speaks another version of the protocol.
    VersionMismatch,
    /// The caller may not do this.
    AccessControl,
    /// The token is unknown, cancelled or expired.
    InvalidToken,
    /// The handshake failed.
    Sasl,
    /// The master is not registered: it has to register again and ask for everything again.
    MasterNotRegistered,
    /// The attempt is over; its master should end.
    AttemptNotFound,
    /// The master's request is out of order, or it registers twice.
    InvalidMasterRequest,
    /// No such application.
    ApplicationNotFound,
    /// No such container.
    ContainerNotFound,
    /// An ask that can never be met; nothing of its request was applied.
    InvalidAsk,
    /// The NodeManager is starting: the same call works a little later.
    NodeNotReady,
    /// The NodeManager refuses the container.
    InvalidContainer,
    /// The file or directory is not there.
    FileNotFound,
    /// Anything else; see the class and message.
    Other,
}

impl Exception {
    pub(crate) fn new(class: &str, message: &str, detail: Option<RpcErrorCodeProto>) -> Self {
        let class = cut(class, CLASS_BYTES_MAX).to_owned();
        // Java appends its stack to the message; the frames begin with a tab.
        let said = message.split("\n\tat ").next().unwrap_or_default().trim();
        let kind = kind_of(wrapped(&class, said), detail);
        Self { class, message: cut(said, MESSAGE_BYTES_MAX).to_owned(), kind }
    }

    pub(crate) fn of_header(header: &RpcResponseHeaderProto) -> Self {
        // The field's getter would give the first value for a missing one.
        let detail = header.error_detail.and_then(|code| RpcErrorCodeProto::try_from(code).ok());
        Self::new(header.exception_class_name(), header.error_msg(), detail)
    }

    /// What it means to the caller.
    pub fn kind(&self) -> ExceptionKind {
        self.kind
    }

    /// The class without its package.
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

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The class that counts. The ResourceManager wraps what other parts of it throw, and the message then
/// begins with the name of what is inside.
fn wrapped<'a>(class: &'a str, message: &'a str) -> &'a str {
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
    fn the_stack_is_cut_off_and_the_class_is_understood() {
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
    fn what_is_wrapped_counts_and_a_mere_mention_does_not() {
        let inside = |message: &str| check(WRAPPER, message).kind();
        let denied = "org.apache.hadoop.security.AccessControlException: User bob may not";
        assert_eq!(inside(denied), ExceptionKind::AccessControl);
        assert_eq!(inside("no: org.apache.hadoop.security"), ExceptionKind::Other);
        assert_eq!(inside("org.apache.hadoop. says: no"), ExceptionKind::Other);
        let other = check("x.Unknown", denied).kind();
        assert_eq!(other, ExceptionKind::Other);
    }

    #[test]
    fn the_detail_decides_where_the_class_says_nothing() {
        let busy = Exception::new("x.Unknown", "full", Some(RpcErrorCodeProto::ErrorRpcServer));
        assert_eq!(busy.kind(), ExceptionKind::Busy);
        assert_eq!(check("x.Unknown", "full").kind(), ExceptionKind::Other);
    }

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let exception = check("x", &"é".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(exception.message.len(), MESSAGE_BYTES_MAX);
        assert_eq!(check("", "").to_string(), "the server gave no reason");
    }
}
