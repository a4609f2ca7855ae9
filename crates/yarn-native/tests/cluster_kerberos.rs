//! A cluster with Kerberos where everything said is signed: an ordinary user's application has a
//! real master in a container, files are read and written by token alone, and Hadoop's own programs
//! and ours read each other's credentials.

mod cluster_kerberos_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use cluster_kerberos_support::{
    alice, alice_submits_both_ways, block_on, client, config, over, part, play, player, realm,
    scratch, soon,
};
use hdfs_native::{ClientBuilder, WriteOptions};
use testbed::{Cluster, Hdfs, Protection, Version, run};
use tokio::time::{Instant, sleep, timeout};
use yarn_native::client::Submission;
use yarn_native::config::Config;
use yarn_native::credentials::{Credentials, Format, TokenIdentifier};
use yarn_native::namenode::{NameNodes, fetch_tokens};
use yarn_native::node::{NmClient, NmClientOptions, Start};
use yarn_native::rpc::{ExceptionKind, RpcError};
use yarn_native::scheduler::{AllocateRequest, AmRmClient, Ask, Finish, Registration};
use yarn_native::security::{Identity, TicketSource};
use yarn_native::types::{
    ApplicationState, Container, ExitStatus, FinalStatus, LaunchContext, LocalResource,
    LocalResourceKind, Resource, Visibility,
};

const NAME: &str = "tokens_carry_a_user_from_a_ticket_to_a_container";
const KIND: &str = "HDFS_DELEGATION_TOKEN";
const FETCHER: &str = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher";
const RENEWER_KEYTAB: &str = "YARN_NATIVE_TEST_RENEWER";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn tokens_carry_a_user_from_a_ticket_to_a_container() {
    match part().as_deref() {
        None => {
            let cluster = realm(Protection::Integrity, Hdfs::One);
            java_writes(&cluster);
            let kerberos = cluster.kerberos().expect("a realm");
            let mut alice = alice(&cluster, NAME, "alice");
            play(alice.env(RENEWER_KEYTAB, kerberos.keytab("yarn/localhost")));
            java_reads(&cluster);
        }
        Some("alice") => block_on(with_a_ticket()),
        Some("holder") => block_on(with_a_token()),
        Some("late holder") => block_on(with_a_token_that_was_cancelled()),
        Some("master") => block_on(as_the_master()),
        Some(other) => panic!("{other}"),
    }
}

async fn with_a_ticket() {
    let config = config();
    alice_submits_both_ways(&config).await;
    what_java_wrote_is_read_and_used(&config).await;
    let ours = tokens(&config).await;
    ours.write(&scratch("ours-writable"), Format::Writable).unwrap();
    ours.write(&scratch("ours-protobuf"), Format::Protobuf).unwrap();
    a_token_of_hdfs_lives(&config).await;
    a_master_runs_in_a_container(&config).await;
}

/// Alice's tokens, which the ResourceManager may renew, under every name of their servers.
async fn tokens(config: &Config) -> Credentials {
    let renewer = config.renewer().unwrap().expect("a name");
    let file_system = [config.default_fs().unwrap()];
    let identity = Identity::kerberos(TicketSource::Default);
    let fetched = fetch_tokens(config, &file_system, &identity, &renewer, soon());
    fetched.await.unwrap()
}

/// Hadoop's own programs fetch tokens: with the format of all versions, and with that of 3.x.
fn java_writes(cluster: &Cluster) {
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let folder = cluster.directory().join("scratch");
    std::fs::create_dir_all(&folder).expect("a directory");
    let mut fetch = cluster.hadoop(FETCHER).unwrap();
    fetch.args(["--renewer", "yarn"]);
    fetch.arg(folder.join("java-writable"));
    must(fetch.env("KRB5CCNAME", &ticket));
    if cluster.options().version != Version::V2_10_2 {
        let class = "org.apache.hadoop.security.token.DtUtilShell";
        let mut fetch = cluster.hadoop(class).unwrap();
        fetch.args(["get", &cluster.default_fs(), "-renewer", "yarn"]);
        fetch.args(["-format", "protobuf"]);
        fetch.arg(folder.join("java-protobuf"));
        must(fetch.env("KRB5CCNAME", &ticket));
    }
}

fn must(command: &mut Command) -> String {
    let said = run(command, PATIENCE).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(said.status.success(), "{}", said.text);
    said.text
}

async fn what_java_wrote_is_read_and_used(config: &Config) {
    for name in ["java-writable", "java-protobuf"] {
        let file = scratch(name);
        if !file.exists() {
            // Only the older format has been known since before 3.0.
            assert_eq!(cluster_kerberos_support::version(), Version::V2_10_2);
            continue;
        }
        let credentials = Credentials::read(&file).unwrap();
        let token = credentials.of_kind(KIND).expect("a token");
        let says = TokenIdentifier::decode(token).unwrap();
        let TokenIdentifier::Delegation { owner, renewer, .. } = says else {
            panic!("{says:?}");
        };
        assert_eq!((owner.as_str(), renewer.as_str()), (cluster_kerberos_support::ALICE, "yarn"));
        let authority = token.service.clone();
        let holder = NameNodes::from_config(config, &authority, Identity::token(token.clone()));
        assert_eq!(holder.unwrap().key_provider(soon()).await.unwrap(), None);
    }
}

/// Hadoop's own programs know what is in our files, and are let in with it.
fn java_reads(cluster: &Cluster) {
    let old = cluster.options().version == Version::V2_10_2;
    let folder = cluster.directory().join("scratch");
    for name in ["ours-writable", "ours-protobuf"] {
        let file = folder.join(name);
        let mut list = cluster.hadoop("org.apache.hadoop.fs.FsShell").unwrap();
        list.args(["-ls", "/user"])
            .env("HADOOP_TOKEN_FILE_LOCATION", &file)
            .env("KRB5CCNAME", "/nonexistent");
        let said = run(&mut list, PATIENCE).unwrap_or_else(|failure| panic!("{failure}"));
        if old && name == "ours-protobuf" {
            assert!(!said.status.success(), "2.10 knows one format: {}", said.text);
            continue;
        }
        assert!(said.text.contains("/user/alice"), "{}", said.text);
        let mut print = cluster.hadoop(FETCHER).unwrap();
        let said = must(print.arg("--print").arg(&file));
        let service = cluster.namenodes()[0].rpc.to_string();
        assert!(said.contains(KIND) || old, "{said}");
        assert!(said.contains("alice") && said.contains(&service), "{said}");
    }
}

/// Fetched with a ticket, used without, renewed by its renewer, cancelled by its owner.
async fn a_token_of_hdfs_lives(config: &Config) {
    let file_system = config.default_fs().unwrap();
    let owner = Identity::kerberos(TicketSource::Default);
    let owner = NameNodes::from_config(config, &file_system, owner).unwrap();
    let token = owner.delegation_token("yarn/localhost@TESTBED.LOCAL", soon());
    let token = token.await.unwrap().expect("a token");
    let mut credentials = Credentials::default();
    credentials.add(token.service.clone(), token.clone());
    let (_, port) = token.service.rsplit_once(':').expect("a port");
    let elsewhere = NameNodes::from_config(
        config,
        &format!("hdfs://localhost:{port}"),
        Identity::token(token.clone()),
    );
    let spellings = elsewhere.unwrap().token_services().await;
    credentials.copy_to_services(&token.service, &spellings);
    assert_eq!(credentials.tokens().count(), 2, "{credentials:?}");
    credentials.write(&scratch("tokens"), Format::Writable).unwrap();

    play(&mut holder("holder"));

    let refused = owner.renew_token(&token, soon()).await;
    assert!(matches!(refused, Err(RpcError::Denied { .. })), "{refused:?}");
    let keytab = std::env::var_os(RENEWER_KEYTAB).expect("a keytab");
    let renewer = Identity::kerberos(TicketSource::Keytab {
        path: keytab.into(),
        principal: "yarn/localhost@TESTBED.LOCAL".into(),
    });
    let renewer = NameNodes::from_config(config, &file_system, renewer).unwrap();
    let until = renewer.renew_token(&token, soon()).await.unwrap();
    assert!(until > SystemTime::now() + Duration::from_secs(3600));

    owner.cancel_token(&token, soon()).await.unwrap();
    match renewer.renew_token(&token, soon()).await {
        Err(RpcError::Rejected { exception, .. }) => {
            assert_eq!(exception.kind(), ExceptionKind::InvalidToken);
        }
        other => panic!("{other:?}"),
    }
    play(&mut holder("late holder"));
}

/// This program with Alice's tokens, and without a ticket.
fn holder(part: &str) -> Command {
    let mut holder = player(NAME, part);
    holder.env("HADOOP_TOKEN_FILE_LOCATION", scratch("tokens")).env("KRB5CCNAME", "/nonexistent");
    holder
}

/// Both ways to write where the NameNode is: Hadoop's token names only the first.
fn spellings(config: &Config) -> [String; 2] {
    let address = config.default_namenodes().unwrap().remove(0).rpc;
    assert_eq!(address.host, "127.0.0.1");
    ["127.0.0.1", "localhost"].map(|host| format!("hdfs://{host}:{}", address.port))
}

fn files(url: &str) -> hdfs_native::Client {
    ClientBuilder::new().with_url(url).build().unwrap()
}

async fn with_a_token() {
    let config = config();
    let without = yarn_native::client::Client::from_config(
        &config,
        Identity::kerberos(TicketSource::Default),
    );
    let refused = without.unwrap().cluster_metrics(soon()).await;
    assert!(matches!(refused, Err(RpcError::Security { .. })), "no ticket: {refused:?}");

    let text: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let [by_address, by_name] = spellings(&config);
    let work = async {
        let options = WriteOptions::default().overwrite(true);
        let mut file = files(&by_address).create("/user/alice/notes", options).await.unwrap();
        file.write_bytes(text.clone().into()).await.unwrap();
        file.close().await.unwrap();
        let mut file = files(&by_name).read("/user/alice/notes").await.unwrap();
        assert_eq!(file.file_length(), text.len());
        let read = file.read_bytes(text.len()).await.unwrap();
        assert_eq!(read, text);
        let status = files(&by_name).get_file_info("/user/alice/notes").await;
        assert_eq!(status.unwrap().owner, "alice");
    };
    timeout(PATIENCE, work).await.expect("HDFS answers");
}

async fn with_a_token_that_was_cancelled() {
    let config = config();
    for url in spellings(&config) {
        let client = files(&url);
        let refused = timeout(PATIENCE, client.get_file_info("/user/alice/notes"));
        let refused = refused.await.expect("HDFS answers").unwrap_err();
        assert!(refused.to_string().contains("InvalidToken"), "{refused}");
    }
    // Hadoop RPC says the same to us.
    let credentials = Credentials::read(&scratch("tokens")).unwrap();
    let token = credentials.of_kind(KIND).expect("a token").clone();
    let holder = NameNodes::from_config(&config, "", Identity::token(token)).unwrap();
    let refused = holder.key_provider(soon()).await;
    assert!(matches!(refused, Err(RpcError::Security { .. })), "{refused:?}");
}

/// The master is this very program, which the node fetches from HDFS with Alice's token.
async fn a_master_runs_in_a_container(config: &Config) {
    let program = upload(config).await;
    let client = client(config, TicketSource::Default);
    let id = client.new_application(soon()).await.unwrap().id;
    let directory = std::env::var("HADOOP_CONF_DIR").expect("a directory");
    let script = format!("./master --exact {NAME} --nocapture 1><LOG_DIR>/stdout 2>&1");
    let mut launch = LaunchContext::command(script);
    launch.resources.insert("master".into(), program);
    launch.environment = BTreeMap::from([
        ("HADOOP_CONF_DIR".into(), directory),
        ("YARN_NATIVE_TEST_PART".into(), "master".into()),
    ]);
    let tokens = tokens(config).await;
    launch.credentials = Some(tokens.to_bytes(Format::Writable).into());
    let submission =
        Submission { attempts_max: Some(1), launch, ..Submission::new(id, "a real master") };
    client.submit(&submission, soon()).await.unwrap();
    let report = over(&client, id).await;
    assert_eq!(report.state, ApplicationState::Finished, "{report:?}");
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    assert_eq!(report.diagnostics, "it ended with 17");
    assert_eq!(report.user, "alice");
}

async fn upload(config: &Config) -> LocalResource {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let url = config.default_fs().unwrap();
    let path = "/user/alice/master";
    let work = async {
        let files = files(&url);
        let options = WriteOptions::default().overwrite(true);
        let mut file = files.create(path, options).await.unwrap();
        file.write_bytes(bytes.into()).await.unwrap();
        file.close().await.unwrap();
        files.get_file_info(path).await.unwrap()
    };
    let status = timeout(PATIENCE, work).await.expect("HDFS answers");
    LocalResource {
        location: format!("{url}{path}").parse().unwrap(),
        bytes: status.length as u64,
        modified: status.modification_time as i64,
        kind: LocalResourceKind::File,
        visibility: Visibility::Private,
    }
}

/// In its container: it has nothing but its credentials, and a place in the configuration.
async fn as_the_master() {
    let config = config();
    assert!(std::env::var_os("KRB5CCNAME").is_none(), "no ticket");
    let file = std::env::var_os("HADOOP_TOKEN_FILE_LOCATION").expect("credentials");
    let mut credentials = Credentials::read(Path::new(&file)).unwrap();
    let token = credentials.of_kind("YARN_AM_RM_TOKEN").expect("a token");
    let mut scheduler = AmRmClient::from_config(&config, token.clone()).unwrap();
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await.unwrap();
    // What it hands on is not its own right to ask for containers.
    credentials.remove_kind("YARN_AM_RM_TOKEN");
    let find = format!("grep -q {KIND} $HADOOP_TOKEN_FILE_LOCATION && exit 17; exit 18");
    let launch = LaunchContext {
        credentials: Some(credentials.to_bytes(Format::Writable).into()),
        ..LaunchContext::command(find)
    };
    let exit = run_one(&mut scheduler, &config, &launch).await;
    let finish = Finish {
        diagnostics: match exit {
            ExitStatus::Exited(code) => format!("it ended with {code}"),
            other => format!("it ended as {other}"),
        },
        ..Finish::new(FinalStatus::Succeeded)
    };
    scheduler.finish(&finish, soon()).await.unwrap();
}

async fn run_one(
    scheduler: &mut AmRmClient,
    config: &Config,
    launch: &LaunchContext,
) -> ExitStatus {
    let nodes = NmClient::new(NmClientOptions::from_config(config).unwrap());
    let mut asks = vec![Ask::anywhere(1, Resource::new(128, 1), 1)];
    let deadline = soon();
    loop {
        let request =
            || AllocateRequest { asks: std::mem::take(&mut asks), ..AllocateRequest::default() };
        let answer = scheduler.allocate(request, deadline).await.unwrap();
        nodes.add_tokens(answer.node_tokens);
        for container in &answer.granted {
            start(&nodes, container, launch).await;
        }
        if let Some(status) = answer.completed.first() {
            return status.exit;
        }
        assert!(Instant::now() < deadline, "no container came");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn start(nodes: &NmClient, container: &Container, launch: &LaunchContext) {
    let starts = [Start { container, launch }];
    let outcome = nodes.start(&container.node, &starts, soon()).await.unwrap();
    assert_eq!(outcome.started, [container.id], "{outcome:?}");
}
