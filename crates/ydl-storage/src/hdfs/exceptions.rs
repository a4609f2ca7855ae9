//! Translation of NameNode exceptions into errors.

use super::{
    connect::given,
    error::{HdfsError, Kind},
    tokens::{EXPIRY_MARGIN, TOKEN_KIND},
};
use hdfs_native::HdfsError as Native;
use std::time::{SystemTime, UNIX_EPOCH};
use yarn_native::credentials::{Credentials, TokenIdentifier};
use ydl_os::reason;

/// Maximum length of a server's message. Its first line states the error, the rest is a stack trace.
const WORDS_MAX: usize = 400;

/// Operation and path, for messages.
#[derive(Clone, Debug)]
pub(super) struct CallContext {
    /// As in "write".
    pub(super) verb: &'static str,
    /// The file, as a URL.
    pub(super) place: String,
    /// The NameNodes that answer for it.
    pub(super) servers: String,
    /// Source of their address.
    pub(super) origin: String,
}

impl CallContext {
    /// A failure of that kind, in a sentence that ends with `why`.
    pub(super) fn failed(&self, kind: Kind, why: impl AsRef<str>) -> HdfsError {
        let why = why.as_ref();
        HdfsError::new(kind, format!("cannot {} `{}`: {why}", self.verb, self.place))
    }

    /// Creates the error for a missed deadline.
    pub(super) fn timed_out(&self) -> HdfsError {
        let why = format!("no answer in time from the NameNode at {}", self.servers);
        self.unreachable(why)
    }

    /// Creates the error for an unreachable server.
    pub(super) fn unreachable(&self, why: impl AsRef<str>) -> HdfsError {
        self.failed(Kind::Unreachable, why).hint(self.reach())
    }

    fn reach(&self) -> String {
        format!(
            "see whether HDFS runs and this machine may connect to it; its address is from {}",
            self.origin
        )
    }

    /// Translates an error of hdfs-native.
    pub(super) fn translate(&self, error: Native) -> HdfsError {
        match error {
            Native::FileNotFound(_) | Native::BlocksNotFound(_) => {
                self.failed(Kind::NotFound, "there is no such file")
            }
            Native::AlreadyExists(words) => self.exists(&words),
            Native::IsADirectoryError(_) => self.failed(Kind::Exists, "it is a directory"),
            Native::RPCError(class, words) | Native::FatalRPCError(class, words) => {
                self.exception(&class, &words)
            }
            Native::IOError(error) => {
                let why =
                    format!("the NameNode at {} does not answer: {}", self.servers, reason(&error));
                self.unreachable(why)
            }
            Native::DataTransferError(words) => {
                let why = format!("a DataNode failed: {}", first_line(&words));
                // One whose disk is full says no more than one that is killed.
                self.failed(Kind::Unreachable, why).hint(
                    "its disk may be full, or it may have ended: `hdfs dfsadmin -report` tells; else see whether this machine may connect to the cluster's DataNodes",
                )
            }
            Native::NoSASLMechanism => self.unauthenticated("there is no token for it"),
            Native::SASLError(words) => self.unauthenticated(&first_line(&words)),
            Native::GSSAPIError(_, _, words) => self.unauthenticated(&first_line(&words)),
            Native::UnsupportedFeature(words) => self.failed(Kind::Other, first_line(&words)),
            other => self.failed(Kind::Other, first_line(&other.to_string())),
        }
    }

    fn exists(&self, words: &str) -> HdfsError {
        // hdfs-native maps two exceptions to one: the other one is a concurrent writer.
        match words.contains("being created") || words.contains("ecovery") {
            true => self.failed(Kind::Exists, "another process is writing it"),
            false => self.failed(Kind::Exists, "it exists already"),
        }
    }

    fn unauthenticated(&self, why: &str) -> HdfsError {
        if has_ended() {
            return self.ended();
        }
        self.failed(Kind::Unauthenticated, format!("this user cannot be proven: {why}"))
            .hint("renew the Kerberos ticket with `kinit`, or name a keytab")
    }

    /// Said in one sentence, remedy and all: of what ends a job only the sentence is kept.
    fn ended(&self) -> HdfsError {
        let why = "the job's tokens have reached the end of their life; \
                   a `keytab:` in the job file gets new ones in time";
        self.failed(Kind::Unauthenticated, why)
    }

    fn exception(&self, class: &str, words: &str) -> HdfsError {
        let name = class.rsplit(['.', '$']).next().unwrap_or(class);
        let line = first_line(words);
        match name {
            "FileNotFoundException" if is_about_leases(&line) => self.lease_lost(),
            "FileNotFoundException" => self.failed(Kind::NotFound, "there is no such file"),
            "FileAlreadyExistsException" | "AlreadyBeingCreatedException" => self.exists(&line),
            "ParentNotDirectoryException" => {
                self.failed(Kind::Exists, "something above it is a file, not a directory")
            }
            "LeaseExpiredException" | "RecoveryInProgressException" => self.lease_lost(),
            "AccessControlException" | "AuthorizationException" => {
                self.failed(Kind::Denied, denied(&line))
                    .hint("ask its owner for access, or name another directory with `staging:`")
            }
            "SafeModeException" => self.safe_mode(),
            "NotReplicatedYetException" => {
                self.failed(Kind::NotReplicated, "the DataNodes are behind with what came before")
            }
            "RetriableException" if line.contains("safe mode") => self.safe_mode(),
            "StandbyException" => self
                .failed(
                    Kind::Unreachable,
                    format!("none of the NameNodes at {} is active", self.servers),
                )
                .hint("wait until one has taken over, or tell the cluster's administrator"),
            "NSQuotaExceededException" | "DSQuotaExceededException"
            | "QuotaByStorageTypeExceededException" | "QuotaExceededException" => self
                .failed(Kind::Quota, quota(&line))
                .hint("delete what is no longer needed there, ask for a larger quota, or name another directory with `staging:`"),
            "DiskOutOfSpaceException" => self.no_space(&line),
            "InvalidToken" if line.contains("is expired") || has_ended() => self.ended(),
            "InvalidToken" => self.failed(Kind::Unauthenticated, format!("its token is refused: {line}"))
                .hint("submit again; for jobs longer than tokens live, name a keytab"),
            "SaslException" | "GSSException" => self.unauthenticated(&line),
            _ if line.contains("could only be written to") || line.contains("could only be replicated to") => self.no_space(&line),
            _ if line.contains("UNDER_CONSTRUCTION") || line.contains("not under construction") || is_about_leases(&line) => self.lease_lost(),
            _ => self.failed(Kind::Other, line),
        }
    }

    fn lease_lost(&self) -> HdfsError {
        self.failed(Kind::LeaseLost, "another process has taken over its lease")
    }

    fn safe_mode(&self) -> HdfsError {
        let why = format!("the NameNode at {} is in safe mode", self.servers);
        self.failed(Kind::SafeMode, why)
            .hint("wait until it leaves safe mode, usually a minute after its start; `hdfs dfsadmin -safemode get` shows the state")
    }

    fn no_space(&self, line: &str) -> HdfsError {
        self.failed(Kind::NoSpace, format!("no DataNode accepts the data: {line}"))
            .hint("their disks are full, or none of them runs; see `hdfs dfsadmin -report`")
    }
}

/// Returns true if a token of this process has expired.
fn has_ended() -> bool {
    given().is_some_and(|tokens| ends_before(&tokens, SystemTime::now() + EXPIRY_MARGIN))
}

fn ends_before(tokens: &Credentials, moment: SystemTime) -> bool {
    let moment = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut ends = tokens.tokens().filter_map(|(_, token)| {
        let is_ours = token.kind == TOKEN_KIND;
        TokenIdentifier::decode(token).ok().filter(|_| is_ours)?.expires_ms()
    });
    ends.any(|expires_ms| u128::try_from(expires_ms).unwrap_or(0) <= moment.as_millis())
}

fn is_about_leases(line: &str) -> bool {
    line.contains("o lease on") || line.contains("does not have any open files")
}

/// `Permission denied: user=bob, access=WRITE, inode="/user/alice":alice:users:drwx------` in words.
fn denied(line: &str) -> String {
    let part = |key: &str, end: &[char]| {
        let rest = &line[line.find(key)? + key.len()..];
        Some(rest.split(end).next().unwrap_or(rest).to_owned())
    };
    let known = (|| {
        let user = part("user=", &[','])?;
        let access = part("access=", &[','])?.to_lowercase();
        let inode = part("inode=\"", &['"'])?;
        Some(format!("user `{user}` has no {access} access to `{inode}`"))
    })();
    known.unwrap_or_else(|| line.to_owned())
}

/// The part of a quota's message that has the numbers.
fn quota(line: &str) -> String {
    match line.split_once(" is exceeded: ") {
        Some((whose, numbers)) => format!("{whose} is exceeded: {numbers}"),
        None => line.to_owned(),
    }
}

fn first_line(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default().trim();
    let line: String = line.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect();
    line.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(class: &str, words: &str) -> HdfsError {
        let about = CallContext {
            verb: "write",
            place: "hdfs://nn:1/f".into(),
            servers: "`nn:1`".into(),
            origin: "a test".into(),
        };
        about.translate(Native::RPCError(class.into(), words.into()))
    }

    #[test]
    fn exceptions_are_told_apart_by_what_can_be_done() {
        for (class, words, kind) in [
            ("java.io.FileNotFoundException", "File does not exist: /f", Kind::NotFound),
            (
                "java.io.FileNotFoundException",
                "File does not exist: /f (inode 7) Holder DFSClient_1 does not have any open files.",
                Kind::LeaseLost,
            ),
            (
                "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException",
                "No lease on /f (inode 7): File is not open for writing.",
                Kind::LeaseLost,
            ),
            (
                "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
                "Cannot create file/f. Name node is in safe mode.\nIt was turned on manually.",
                Kind::SafeMode,
            ),
            (
                "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
                "The DiskSpace quota of /q is exceeded: quota = 1024 B = 1 KB but diskspace consumed = 2048 B\n\tat x",
                Kind::Quota,
            ),
            (
                "java.io.IOException",
                "File /f could only be written to 0 of the 1 minReplication nodes. There are 0 datanode(s) running",
                Kind::NoSpace,
            ),
            (
                "org.apache.hadoop.security.token.SecretManager$InvalidToken",
                "token (token for alice: HDFS_DELEGATION_TOKEN) can't be found in cache",
                Kind::Unauthenticated,
            ),
            ("org.apache.hadoop.ipc.StandbyException", "", Kind::Unreachable),
            ("java.lang.Odd", "what", Kind::Other),
        ] {
            let error = read(class, words);
            assert_eq!(error.kind, kind, "{class}: {error}");
            assert!(!error.what.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_refusal_names_who_what_and_where() {
        let error = read(
            "org.apache.hadoop.security.AccessControlException",
            "Permission denied: user=bob, access=WRITE, inode=\"/user/alice\":alice:users:drwx------\n\tat x",
        );
        assert_eq!(
            error.what,
            "cannot write `hdfs://nn:1/f`: user `bob` has no write access to `/user/alice`"
        );
        let odd = read("x.AccessControlException", "user=");
        assert_eq!(odd.kind, Kind::Denied);
    }
}
