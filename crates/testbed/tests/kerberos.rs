//! A cluster with Kerberos lets in who has a ticket, and nobody else.

use std::process::Output;
use testbed::{Cluster, Options, Protection, Version};

const LIST: &str = "org.apache.hadoop.yarn.client.cli.NodeCLI";

fn list(cluster: &Cluster, ticket: &std::path::Path) -> Output {
    let mut command = cluster.hadoop(LIST).unwrap();
    command
        .args(["-list"])
        .env("KRB5CCNAME", ticket)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn lets_in_who_has_a_ticket(version: Version, protection: Protection) {
    let cluster = Cluster::start(Options {
        kerberos: Some(protection),
        users: vec!["alice".to_owned()],
        ..Options::new(version)
    });
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let kerberos = cluster.kerberos().unwrap();

    let ticket = kerberos.kinit("alice", None).unwrap();
    let klist = kerberos
        .client("klist")
        .arg("-c")
        .arg(&ticket)
        .output()
        .unwrap();
    assert!(text(&klist).contains("alice@TESTBED.LOCAL"), "{klist:?}");
    let nodes = list(&cluster, &ticket);
    assert!(
        nodes.status.success() && text(&nodes).contains("RUNNING"),
        "{}",
        text(&nodes)
    );

    let refused = list(&cluster, std::path::Path::new("/nonexistent"));
    assert!(!refused.status.success(), "{}", text(&refused));
    assert!(
        text(&refused).contains("TOKEN, KERBEROS"),
        "{}",
        text(&refused)
    );

    let homes = cluster.fs(&["-ls", "/user"]).unwrap();
    assert!(homes.contains("/user/alice"), "{homes}");
    kerberos.add(&["bob"]).unwrap();
    assert!(kerberos.keytab("bob").is_file());
    kerberos.kinit("bob", Some("10s")).unwrap();
    kerberos.kinit("carol", None).unwrap_err();

    cluster.kill("kdc").unwrap();
    kerberos.kinit("alice", None).unwrap_err();
    cluster.start_daemon("kdc").unwrap();
    kerberos.kinit("alice", None).unwrap();
}

#[test]
fn only_who_has_a_ticket_gets_an_answer_from_3_5() {
    lets_in_who_has_a_ticket(Version::V3_5_0, Protection::Privacy);
}

#[test]
fn only_who_has_a_ticket_gets_an_answer_from_2_10() {
    lets_in_who_has_a_ticket(Version::V2_10_2, Protection::Integrity);
}
