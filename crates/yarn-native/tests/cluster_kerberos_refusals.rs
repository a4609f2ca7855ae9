//! Kerberos that fails, against a real cluster: each failure says what it is, and is told from the
//! others by its type. Calls are signed by nobody and sealed by nobody here, only authenticated.

mod cluster_kerberos_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_kerberos_support::{
    alice, alice_submits_both_ways, block_on, client, config, part, play, realm, scratch, soon,
    with_keytab,
};
use testbed::{Cluster, Hdfs, Kerberos, Protection, run};
use yarn_native::client::Client;
use yarn_native::config::Config;
use yarn_native::rpc::RpcError;
use yarn_native::security::{self, AuthMethod, Identity, SecurityError, TicketSource};

const NAME: &str = "what_is_wrong_with_kerberos_is_said";
/// A realm that has its own users, and no trust in the cluster's.
const ELSEWHERE: &str = "ELSEWHERE.LOCAL";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_is_wrong_with_kerberos_is_said() {
    if part().is_some() {
        return block_on(inside());
    }
    let cluster = realm(Protection::Authentication, Hdfs::None);
    let kerberos = cluster.kerberos().expect("a realm");
    let mut alice = alice(&cluster, NAME, "alice");
    let folder = cluster.directory().join("scratch");
    let elsewhere = a_ticket_of_another_realm(&cluster, &folder);
    alice.env("KRB5_CONFIG", elsewhere);
    an_expired_ticket(kerberos, &folder);
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    std::fs::copy(ticket, folder.join("good")).expect("a copy");
    play(&mut alice);
}

fn must(command: &mut Command) {
    let said = run(command, PATIENCE).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(said.status.success(), "{}", said.text);
}

/// Leaves a cache `expired`, and returns when its ticket is over by the library's own account.
fn an_expired_ticket(kerberos: &Kerberos, folder: &Path) {
    let cache = kerberos.kinit("alice", Some("1s")).expect("a ticket");
    let over = testbed::wait_for("the end of a ticket", PATIENCE, || {
        let mut list = kerberos.client("klist");
        let said = run(list.args(["-s", "-c"]).arg(&cache), PATIENCE).ok()?;
        (!said.status.success()).then_some(())
    });
    over.unwrap_or_else(|failure| panic!("{failure}"));
    std::fs::rename(cache, folder.join("expired")).expect("a file moved");
}

/// Leaves a cache `elsewhere`; where a configuration is that knows both realms. Its users are in the same
/// server's database, which knows no way from one realm into the other.
fn a_ticket_of_another_realm(cluster: &Cluster, folder: &Path) -> PathBuf {
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
    must(kinit.arg(format!("alice@{ELSEWHERE}")));
    both
}

async fn inside() {
    let config = config();
    alice_submits_both_ways(&config).await;
    an_expired_ticket_is_told(&config).await;
    a_ticket_of_the_wrong_realm_is_told(&config).await;
    a_missing_library_is_told(&config).await;
    clocks_that_differ_are_told(&config).await;
}

fn cache(name: &str) -> TicketSource {
    TicketSource::Cache(format!("FILE:{}", scratch(name).display()))
}

/// Why a caller is not let in: what the library says of it, and what it shows a person, which must
/// begin with the server.
async fn refusal(config: &Config, client: &Client) -> (SecurityError, String) {
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

async fn an_expired_ticket_is_told(config: &Config) {
    let (error, shown) = refusal(config, &client(config, cache("expired"))).await;
    assert!(matches!(error, SecurityError::TicketExpired { .. }), "{error:?}");
    assert!(shown.starts_with("the Kerberos ticket has expired: "), "{shown}");
    assert!(!shown.contains("Success"), "{shown}");
    let named = format!("{}`)", scratch("expired").display());
    assert!(shown.ends_with(&named), "{shown}");
    assert!(error.hint().is_some_and(|hint| hint.contains("kinit")));
}

async fn a_ticket_of_the_wrong_realm_is_told(config: &Config) {
    let (error, shown) = refusal(config, &client(config, cache("elsewhere"))).await;
    assert!(matches!(error, SecurityError::WrongRealm { .. }), "{error:?}");
    assert!(shown.contains("TESTBED.LOCAL") && shown.contains(ELSEWHERE), "{shown}");
    assert!(error.hint().is_some_and(|hint| hint.contains("realm")));

    // A realm that no configuration knows is another way to be wrong.
    let TicketSource::Keytab { path, .. } = with_keytab() else {
        panic!("no keytab");
    };
    let principal = "alice@NOWHERE.LOCAL".to_owned();
    let stranger = client(config, TicketSource::Keytab { path, principal });
    let (error, shown) = refusal(config, &stranger).await;
    assert!(matches!(error, SecurityError::Keytab { .. }), "{error:?}");
    assert!(shown.contains("alice@NOWHERE.LOCAL"), "{shown}");
}

async fn a_missing_library_is_told(config: &Config) {
    for library in ["/nonexistent/libgssapi_krb5.so.2", "/etc/hostname"] {
        let kerberos =
            security::Kerberos { tickets: TicketSource::Default, library: Some(library.into()) };
        let identity = Identity { auth: AuthMethod::Kerberos(kerberos), acting_for: None };
        let client = Client::from_config(config, identity).unwrap();
        let (error, shown) = refusal(config, &client).await;
        assert!(matches!(error, SecurityError::MissingLibrary { .. }), "{error:?}");
        assert!(shown.starts_with("the Kerberos library could not be opened: "));
        assert!(shown.contains(library), "{shown}");
        assert!(error.hint().is_some_and(|hint| hint.contains("install")));
    }
}

/// A cache remembers how far the clock of the machine it was made on was off, and the library goes
/// by that clock: so a cache that says an hour makes this process's clock wrong by an hour.
fn shift_clock(from: &str, to: &str, seconds: i32) {
    let mut bytes = std::fs::read(scratch(from)).expect("a cache");
    // Version 4, a header of 12 bytes, and in it the difference, 8 bytes long.
    assert_eq!(bytes[..8], [5, 4, 0, 12, 0, 1, 0, 8]);
    bytes[8..12].copy_from_slice(&seconds.to_be_bytes());
    std::fs::write(scratch(to), bytes).expect("a file");
}

async fn clocks_that_differ_are_told(config: &Config) {
    for seconds in [3600, -3600] {
        shift_clock("good", "skewed", seconds);
        let (error, shown) = refusal(config, &client(config, cache("skewed"))).await;
        assert!(matches!(error, SecurityError::ClockSkew { .. }), "{error:?}");
        assert!(shown.starts_with("the clock of this machine differs"), "{shown}");
        assert!(error.hint().is_some_and(|hint| hint.contains("clock")));
    }
    // With a ticket for the server in the cache it is not the realm but the server that finds out,
    // and does not say it: the hint has to.
    let metrics = client(config, cache("good")).cluster_metrics(soon()).await;
    assert_eq!(metrics.unwrap().active, 1);
    shift_clock("good", "skewed", 3600);
    let (error, shown) = refusal(config, &client(config, cache("skewed"))).await;
    let told = matches!(error, SecurityError::ClockSkew { .. });
    let hinted = error.hint().is_some_and(|hint| hint.contains("clock"));
    assert!(told || hinted, "{error:?}");
    assert!(shown.contains("GSS") || told, "{shown}");
}
