//! Tests on a cluster with Kerberos and integrity: an ordinary user's application runs its
//! ApplicationMaster in a container, files are read and written with tokens only, and Java and Rust
//! programs read each other's credentials.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::kerberos::{
    alice, block_on, check_submission_with_keytab_and_ticket, child, client, config, part, realm,
    run_child, scratch, soon, wait_until_finished,
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

const NAME: &str = "tokens::tokens_authenticate_a_user_up_to_the_container";
const KIND: &str = "HDFS_DELEGATION_TOKEN";
const FETCHER: &str = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher";
const RENEWER_KEYTAB: &str = "YARN_NATIVE_TEST_RENEWER";
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn tokens_authenticate_a_user_up_to_the_container() {
    match part().as_deref() {
        None => {
            let cluster = realm(Protection::Integrity, Hdfs::One);
            write_credentials_with_java(&cluster);
            let kerberos = cluster.kerberos().expect("a realm");
            let mut alice = alice(&cluster, NAME, "alice");
            run_child(alice.env(RENEWER_KEYTAB, kerberos.keytab("yarn/localhost")));
            read_credentials_with_java(&cluster);
        }
        Some("alice") => block_on(check_with_a_ticket()),
        Some("holder") => block_on(check_token_access()),
        Some("cancelled holder") => block_on(check_cancelled_token()),
        Some("master") => block_on(run_master()),
        Some(other) => panic!("{other}"),
    }
}

async fn check_with_a_ticket() {
    let config = config();
    check_submission_with_keytab_and_ticket(&config).await;
    check_java_credentials(&config).await;
    let ours = tokens(&config).await;
    ours.write(&scratch("ours-writable"), Format::Writable).unwrap();
    ours.write(&scratch("ours-protobuf"), Format::Protobuf).unwrap();
    check_hdfs_token_lifecycle(&config).await;
    check_master_in_a_container(&config).await;
}

/// Fetches Alice's tokens, renewable by the ResourceManager.
async fn tokens(config: &Config) -> Credentials {
    let renewer = config.renewer().unwrap().expect("a name");
    let file_system = [config.default_fs().unwrap()];
    let identity = Identity::kerberos(TicketSource::Default);
    let fetched = fetch_tokens(config, &file_system, &identity, &renewer, soon());
    fetched.await.unwrap()
}

/// Hadoop's own programs write credentials, in the old format and in that of 3.x.
fn write_credentials_with_java(cluster: &Cluster) {
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let folder = cluster.directory().join("scratch");
    std::fs::create_dir_all(&folder).expect("a directory");
    let mut fetch = cluster.hadoop(FETCHER).unwrap();
    fetch.args(["--renewer", "yarn"]);
    fetch.arg(folder.join("java-writable"));
    run_successfully(fetch.env("KRB5CCNAME", &ticket));
    if cluster.options().version != Version::V2_10_2 {
        let class = "org.apache.hadoop.security.token.DtUtilShell";
        let mut fetch = cluster.hadoop(class).unwrap();
        fetch.args(["get", &cluster.default_fs(), "-renewer", "yarn"]);
        fetch.args(["-format", "protobuf"]);
        fetch.arg(folder.join("java-protobuf"));
        run_successfully(fetch.env("KRB5CCNAME", &ticket));
    }
}

fn run_successfully(command: &mut Command) -> String {
    let output = run(command, TIMEOUT).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(output.status.success(), "{}", output.text);
    output.text
}

async fn check_java_credentials(config: &Config) {
    for name in ["java-writable", "java-protobuf"] {
        let file = scratch(name);
        if !file.exists() {
            // Versions before 3.0 support only the older format.
            assert_eq!(crate::support::kerberos::version(), Version::V2_10_2);
            continue;
        }
        let credentials = Credentials::read(&file).unwrap();
        let token = credentials.of_kind(KIND).expect("a token");
        let identifier = TokenIdentifier::decode(token).unwrap();
        let TokenIdentifier::Delegation { owner, renewer, .. } = identifier else {
            panic!("{identifier:?}");
        };
        assert_eq!((owner.as_str(), renewer.as_str()), (crate::support::kerberos::ALICE, "yarn"));
        let authority = token.service.clone();
        let holder = NameNodes::from_config(config, &authority, Identity::token(token.clone()));
        assert_eq!(holder.unwrap().key_provider(soon()).await.unwrap(), None);
    }
}

/// Hadoop's own programs read our credentials and authenticate with them.
fn read_credentials_with_java(cluster: &Cluster) {
    let old = cluster.options().version == Version::V2_10_2;
    let folder = cluster.directory().join("scratch");
    for name in ["ours-writable", "ours-protobuf"] {
        let file = folder.join(name);
        let mut list = cluster.hadoop("org.apache.hadoop.fs.FsShell").unwrap();
        list.args(["-ls", "/user"])
            .env("HADOOP_TOKEN_FILE_LOCATION", &file)
            .env("KRB5CCNAME", "/nonexistent");
        let output = run(&mut list, TIMEOUT).unwrap_or_else(|failure| panic!("{failure}"));
        if old && name == "ours-protobuf" {
            assert!(!output.status.success(), "2.10 supports one format: {}", output.text);
            continue;
        }
        assert!(output.text.contains("/user/alice"), "{}", output.text);
        let mut print = cluster.hadoop(FETCHER).unwrap();
        let output = run_successfully(print.arg("--print").arg(&file));
        let service = cluster.namenodes()[0].rpc.to_string();
        assert!(output.contains(KIND) || old, "{output}");
        assert!(output.contains("alice") && output.contains(&service), "{output}");
    }
}

/// Fetches a token with a ticket, uses it without one, renews it as its renewer, cancels it as its
/// owner.
async fn check_hdfs_token_lifecycle(config: &Config) {
    let file_system = config.default_fs().unwrap();
    let owner = Identity::kerberos(TicketSource::Default);
    let owner = NameNodes::from_config(config, &file_system, owner).unwrap();
    let token = owner.delegation_token("yarn/localhost@TESTBED.LOCAL", soon());
    let token = token.await.unwrap().expect("a token");
    let mut credentials = Credentials::default();
    credentials.add(token.service.clone(), token.clone());
    let (_, port) = token.service.rsplit_once(':').expect("a port");
    let by_name = NameNodes::from_config(
        config,
        &format!("hdfs://localhost:{port}"),
        Identity::token(token.clone()),
    );
    let services = by_name.unwrap().token_services().await;
    credentials.copy_to_services(&token.service, &services);
    assert_eq!(credentials.tokens().count(), 2, "{credentials:?}");
    credentials.write(&scratch("tokens"), Format::Writable).unwrap();

    run_child(&mut holder("holder"));

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
    run_child(&mut holder("cancelled holder"));
}

/// Returns this program as a child process with Alice's tokens and without a ticket.
fn holder(part: &str) -> Command {
    let mut holder = child(NAME, part);
    holder.env("HADOOP_TOKEN_FILE_LOCATION", scratch("tokens")).env("KRB5CCNAME", "/nonexistent");
    holder
}

/// URLs of the NameNode by address and by name: Hadoop's token names only the first.
fn namenode_urls(config: &Config) -> [String; 2] {
    let address = config.default_namenodes().unwrap().remove(0).rpc;
    assert_eq!(address.host, "127.0.0.1");
    ["127.0.0.1", "localhost"].map(|host| format!("hdfs://{host}:{}", address.port))
}

fn files(url: &str) -> hdfs_native::Client {
    ClientBuilder::new().with_url(url).build().unwrap()
}

async fn check_token_access() {
    let config = config();
    let without = yarn_native::client::Client::from_config(
        &config,
        Identity::kerberos(TicketSource::Default),
    );
    let refused = without.unwrap().cluster_metrics(soon()).await;
    assert!(matches!(refused, Err(RpcError::Security { .. })), "no ticket: {refused:?}");

    let text: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let [by_address, by_name] = namenode_urls(&config);
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
    timeout(TIMEOUT, work).await.expect("HDFS answers");
}

async fn check_cancelled_token() {
    let config = config();
    for url in namenode_urls(&config) {
        let client = files(&url);
        let refused = timeout(TIMEOUT, client.get_file_info("/user/alice/notes"));
        let refused = refused.await.expect("HDFS answers").unwrap_err();
        assert!(refused.to_string().contains("InvalidToken"), "{refused}");
    }
    // Hadoop RPC rejects the token as well.
    let credentials = Credentials::read(&scratch("tokens")).unwrap();
    let token = credentials.of_kind(KIND).expect("a token").clone();
    let holder = NameNodes::from_config(&config, "", Identity::token(token)).unwrap();
    let refused = holder.key_provider(soon()).await;
    assert!(matches!(refused, Err(RpcError::Security { .. })), "{refused:?}");
}

/// Runs this program as an ApplicationMaster, fetched from HDFS with Alice's token.
async fn check_master_in_a_container(config: &Config) {
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
    let report = wait_until_finished(&client, id).await;
    assert_eq!(report.state, ApplicationState::Finished, "{report:?}");
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    assert_eq!(report.diagnostics, "exited with 17");
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
    let status = timeout(TIMEOUT, work).await.expect("HDFS answers");
    LocalResource {
        location: format!("{url}{path}").parse().unwrap(),
        bytes: status.length as u64,
        modified: status.modification_time as i64,
        kind: LocalResourceKind::File,
        visibility: Visibility::Private,
    }
}

/// Runs in the container, with only its credentials and the configuration.
async fn run_master() {
    let config = config();
    assert!(std::env::var_os("KRB5CCNAME").is_none(), "no ticket");
    let file = std::env::var_os("HADOOP_TOKEN_FILE_LOCATION").expect("credentials");
    let mut credentials = Credentials::read(Path::new(&file)).unwrap();
    let token = credentials.of_kind("YARN_AM_RM_TOKEN").expect("a token");
    let mut scheduler = AmRmClient::from_config(&config, token.clone()).unwrap();
    let registration = Registration::new("localhost");
    scheduler.register(&registration, soon()).await.unwrap();
    // Containers must not receive the AMRM token.
    credentials.remove_kind("YARN_AM_RM_TOKEN");
    let find = format!("grep -q {KIND} $HADOOP_TOKEN_FILE_LOCATION && exit 17; exit 18");
    let launch = LaunchContext {
        credentials: Some(credentials.to_bytes(Format::Writable).into()),
        ..LaunchContext::command(find)
    };
    let exit = run_one(&mut scheduler, &config, &launch).await;
    let finish = Finish {
        diagnostics: match exit {
            ExitStatus::Exited(code) => format!("exited with {code}"),
            other => format!("ended as {other}"),
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
