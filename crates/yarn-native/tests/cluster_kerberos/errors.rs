//! Kerberos failures on a real cluster: each has its own error type and message. Calls use
//! authentication only.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::kerberos::{
    alice, block_on, check_submission_with_keytab_and_ticket, client, config, part, realm,
    run_child, scratch, soon, with_keytab,
};
use testbed::{Cluster, Hdfs, Kerberos, Protection, run};
use yarn_native::client::Client;
use yarn_native::config::Config;
use yarn_native::rpc::RpcError;
use yarn_native::security::{self, AuthMethod, Identity, SecurityError, TicketSource};

const NAME: &str = "errors::kerberos_failures_are_reported";
/// A realm without trust in the cluster's realm.
const ELSEWHERE: &str = "ELSEWHERE.LOCAL";
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn kerberos_failures_are_reported() {
    if part().is_some() {
        return block_on(inside());
    }
    let cluster = realm(Protection::Authentication, Hdfs::None);
    let kerberos = cluster.kerberos().expect("a realm");
    let mut alice = alice(&cluster, NAME, "alice");
    let folder = cluster.directory().join("scratch");
    let elsewhere = create_ticket_of_another_realm(&cluster, &folder);
    alice.env("KRB5_CONFIG", elsewhere);
    create_expired_ticket(kerberos, &folder);
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    std::fs::copy(ticket, folder.join("good")).expect("a copy");
    run_child(&mut alice);
}

fn run_successfully(command: &mut Command) {
    let output = run(command, TIMEOUT).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(output.status.success(), "{}", output.text);
}

/// Creates a cache `expired` and waits until the library reports its ticket as expired.
fn create_expired_ticket(kerberos: &Kerberos, folder: &Path) {
    let cache = kerberos.kinit("alice", Some("1s")).expect("a ticket");
    let over = testbed::wait_for("the end of a ticket", TIMEOUT, || {
        let mut list = kerberos.client("klist");
        let output = run(list.args(["-s", "-c"]).arg(&cache), TIMEOUT).ok()?;
        (!output.status.success()).then_some(())
    });
    over.unwrap_or_else(|failure| panic!("{failure}"));
    std::fs::rename(cache, folder.join("expired")).expect("a file moved");
}

/// Creates a cache `elsewhere` and returns a configuration that knows both realms. Both realms
/// share a database without a trust path between them.
fn create_ticket_of_another_realm(cluster: &Cluster, folder: &Path) -> PathBuf {
    let kerberos = cluster.kerberos().expect("a realm");
    let keytab = folder.join("elsewhere.keytab");
    let queries = format!(
        "addprinc -randkey krbtgt/{ELSEWHERE}@{ELSEWHERE}\n\
         addprinc -randkey alice@{ELSEWHERE}\n\
         ktadd -q -k {} alice@{ELSEWHERE}\n",
        keytab.display()
    );
    kerberos.administer(&queries).expect("principals");
    let text = std::fs::read_to_string(kerberos.configuration()).expect("a configuration");
    let mut lines = text.lines();
    let kdc = lines.find(|line| line.trim().starts_with("kdc = ")).unwrap();
    let realm = format!("[realms]\n{ELSEWHERE} = {{\n{kdc}\n}}\n");
    let both = folder.join("both.conf");
    std::fs::write(&both, text.replace("[realms]\n", &realm)).expect("a file");
    let mut kinit = kerberos.client("kinit");
    kinit.env("KRB5_CONFIG", &both).arg("-k").arg("-t").arg(keytab);
    kinit.arg("-c").arg(folder.join("elsewhere"));
    run_successfully(kinit.arg(format!("alice@{ELSEWHERE}")));
    both
}

async fn inside() {
    let config = config();
    check_submission_with_keytab_and_ticket(&config).await;
    check_expired_ticket(&config).await;
    check_wrong_realm(&config).await;
    check_missing_library(&config).await;
    check_clock_skew(&config).await;
}

fn cache(name: &str) -> TicketSource {
    TicketSource::Cache(format!("FILE:{}", scratch(name).display()))
}

/// Returns the security error of a call, and its message, which must begin with the server's
/// address.
async fn security_error(config: &Config, client: &Client) -> (SecurityError, String) {
    let refused = client.cluster_metrics(soon()).await.unwrap_err();
    let shown = refused.to_string();
    let address = config.resource_managers().unwrap()[0].client.to_string();
    let RpcError::Security { source, .. } = refused else {
        panic!("{refused:?}");
    };
    let why = shown.strip_prefix(&format!("{address}: "));
    let why = why.unwrap_or_else(|| panic!("{shown}")).to_owned();
    (source, why)
}

async fn check_expired_ticket(config: &Config) {
    let (error, shown) = security_error(config, &client(config, cache("expired"))).await;
    assert!(matches!(error, SecurityError::TicketExpired { .. }), "{error:?}");
    assert!(shown.starts_with("the Kerberos ticket has expired: "), "{shown}");
    assert!(!shown.contains("Success"), "{shown}");
    let named = format!("{}`)", scratch("expired").display());
    assert!(shown.ends_with(&named), "{shown}");
    assert!(error.hint().is_some_and(|hint| hint.contains("kinit")));
}

async fn check_wrong_realm(config: &Config) {
    let (error, shown) = security_error(config, &client(config, cache("elsewhere"))).await;
    assert!(matches!(error, SecurityError::WrongRealm { .. }), "{error:?}");
    assert!(shown.contains("TESTBED.LOCAL") && shown.contains(ELSEWHERE), "{shown}");
    assert!(error.hint().is_some_and(|hint| hint.contains("realm")));

    // An unknown realm is another kind of mismatch.
    let TicketSource::Keytab { path, .. } = with_keytab() else {
        panic!("no keytab");
    };
    let principal = "alice@NOWHERE.LOCAL".to_owned();
    let unknown = client(config, TicketSource::Keytab { path, principal });
    let (error, shown) = security_error(config, &unknown).await;
    assert!(matches!(error, SecurityError::Keytab { .. }), "{error:?}");
    assert!(shown.contains("alice@NOWHERE.LOCAL"), "{shown}");
}

async fn check_missing_library(config: &Config) {
    for library in ["/nonexistent/libgssapi_krb5.so.2", "/etc/hostname"] {
        let kerberos =
            security::Kerberos { tickets: TicketSource::Default, library: Some(library.into()) };
        let identity = Identity { auth: AuthMethod::Kerberos(kerberos), acting_for: None };
        let client = Client::from_config(config, identity).unwrap();
        let (error, shown) = security_error(config, &client).await;
        assert!(matches!(error, SecurityError::MissingLibrary { .. }), "{error:?}");
        assert!(shown.starts_with("the Kerberos library could not be opened: "));
        assert!(shown.contains(library), "{shown}");
        assert!(error.hint().is_some_and(|hint| hint.contains("install")));
    }
}

/// Writes a cache with a clock offset. A cache records the clock offset of the machine it was made
/// on and the library applies it, so an offset of an hour shifts this process's clock by an hour.
fn shift_clock(from: &str, to: &str, seconds: i32) {
    let mut bytes = std::fs::read(scratch(from)).expect("a cache");
    // Version 4, a header of 12 bytes containing the offset of 8 bytes.
    assert_eq!(bytes[..8], [5, 4, 0, 12, 0, 1, 0, 8]);
    bytes[8..12].copy_from_slice(&seconds.to_be_bytes());
    std::fs::write(scratch(to), bytes).expect("a file");
}

async fn check_clock_skew(config: &Config) {
    for seconds in [3600, -3600] {
        shift_clock("good", "skewed", seconds);
        let (error, shown) = security_error(config, &client(config, cache("skewed"))).await;
        assert!(matches!(error, SecurityError::ClockSkew { .. }), "{error:?}");
        assert!(shown.starts_with("the clock of this machine differs"), "{shown}");
        assert!(error.hint().is_some_and(|hint| hint.contains("clock")));
    }
    // With a service ticket in the cache the server detects the skew, not the realm, and does not
    // report it: the hint must mention it.
    let metrics = client(config, cache("good")).cluster_metrics(soon()).await;
    assert_eq!(metrics.unwrap().active, 1);
    shift_clock("good", "skewed", 3600);
    let (error, shown) = security_error(config, &client(config, cache("skewed"))).await;
    let reported = matches!(error, SecurityError::ClockSkew { .. });
    let hinted = error.hint().is_some_and(|hint| hint.contains("clock"));
    assert!(reported || hinted, "{error:?}");
    assert!(shown.contains("GSS") || reported, "{shown}");
}
