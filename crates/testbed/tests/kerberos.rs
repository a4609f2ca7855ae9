//! A cluster with Kerberos lets in who has a ticket, and nobody else.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};
use testbed::{Cluster, Options, Protection, Version, run};

const PATIENCE: Duration = Duration::from_secs(60);

fn list_nodes(cluster: &Cluster, ticket: &Path) -> String {
    let class = "org.apache.hadoop.yarn.client.cli.NodeCLI";
    let mut command = cluster.hadoop(class).unwrap();
    let said = run(command.arg("-list").env("KRB5CCNAME", ticket), PATIENCE).unwrap();
    assert!(said.status.success(), "{}", said.text);
    said.text
}

/// What a server says to one who begins a call without proving anything.
fn knock(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"hrpc\x09\x00\x00").unwrap();
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
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
    let klist = run(kerberos.client("klist").arg("-c").arg(&ticket), PATIENCE).unwrap();
    assert!(klist.text.contains("alice@TESTBED.LOCAL"), "{}", klist.text);
    let nodes = list_nodes(&cluster, &ticket);
    assert!(nodes.contains("RUNNING"), "{nodes}");

    let doors = [
        cluster.resource_managers()[0].client,
        cluster.nodes()[0].address,
        cluster.namenodes()[0].rpc,
    ];
    for door in doors {
        let answer = knock(door);
        assert!(answer.contains("SIMPLE authentication is not enabled"), "{door}: {answer}");
    }

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
