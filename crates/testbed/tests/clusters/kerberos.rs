//! A cluster with Kerberos accepts clients with a ticket and rejects all others.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};
use testbed::{Cluster, Options, Protection, Version, run};

const TIMEOUT: Duration = Duration::from_secs(60);

fn list_nodes(cluster: &Cluster, ticket: &Path) -> String {
    let class = "org.apache.hadoop.yarn.client.cli.NodeCLI";
    let mut command = cluster.hadoop(class).unwrap();
    let output = run(command.arg("-list").env("KRB5CCNAME", ticket), TIMEOUT).unwrap();
    assert!(output.status.success(), "{}", output.text);
    output.text
}

/// Returns a server's response to an unauthenticated connection.
fn connect_unauthenticated(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"hrpc\x09\x00\x00").unwrap();
    let mut response = Vec::new();
    stream.take(4096).read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

fn assert_requires_a_ticket(version: Version, protection: Protection) {
    let cluster = Cluster::start(Options {
        kerberos: Some(protection),
        users: vec!["alice".to_owned()],
        ..Options::new(version)
    });
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let kerberos = cluster.kerberos().unwrap();

    let ticket = kerberos.kinit("alice", None).unwrap();
    let klist = run(kerberos.client("klist").arg("-c").arg(&ticket), TIMEOUT).unwrap();
    assert!(klist.text.contains("alice@TESTBED.LOCAL"), "{}", klist.text);
    let nodes = list_nodes(&cluster, &ticket);
    assert!(nodes.contains("RUNNING"), "{nodes}");

    let endpoints = [
        cluster.resource_managers()[0].client,
        cluster.nodes()[0].address,
        cluster.namenodes()[0].rpc,
    ];
    for endpoint in endpoints {
        let response = connect_unauthenticated(endpoint);
        assert!(
            response.contains("SIMPLE authentication is not enabled"),
            "{endpoint}: {response}"
        );
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
fn hadoop_3_5_rejects_clients_without_a_ticket() {
    assert_requires_a_ticket(Version::V3_5_0, Protection::Privacy);
}

#[test]
fn hadoop_2_10_rejects_clients_without_a_ticket() {
    assert_requires_a_ticket(Version::V2_10_2, Protection::Integrity);
}
