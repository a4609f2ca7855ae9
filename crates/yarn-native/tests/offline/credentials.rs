//! Credentials files: compatibility with Java and malformed input.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expect_test::{Expect, expect};
use yarn_native::credentials::{Credentials, CredentialsError, Format, TokenIdentifier};
use yarn_native::{Secret, Token};

/// The same credentials in both formats, written by Hadoop 3.5.0.
const JAVA: [&[u8]; 2] =
    [include_bytes!("credentials/java-writable"), include_bytes!("credentials/java-protobuf")];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn master_token() -> Token {
    Token {
        identifier: bytes("0a0d0a0908071080d095ffbc311001102a"),
        password: b"0123456789abcdefghij".to_vec().into(),
        kind: "YARN_AM_RM_TOKEN".into(),
        service: String::new(),
    }
}

fn small() -> Credentials {
    let mut credentials = Credentials::default();
    credentials.add("", master_token());
    credentials.set_secret("sk", vec![1, 2, 3]);
    credentials
}

#[test]
fn both_formats_have_the_expected_bytes() {
    let writable = bytes(
        "48445453 00 01 00 11 0a0d0a0908071080d095ffbc311001102a 14 303132333435363738396162636465666768696a
         10 5941524e5f414d5f524d5f544f4b454e 00 01 02 736b 03 010203",
    );
    let protobuf = bytes(
        "48445453 01 4e 0a410a00123d0a110a0d0a0908071080d095ffbc311001102a1214303132333435363738396162636465666768696a
         1a105941524e5f414d5f524d5f544f4b454e220012090a02736b1a03010203",
    );
    assert_eq!(*small().to_bytes(Format::Writable), writable);
    assert_eq!(*small().to_bytes(Format::Protobuf), protobuf);
    assert_eq!(Credentials::from_bytes(&writable).unwrap(), small());
    assert_eq!(Credentials::from_bytes(&protobuf).unwrap(), small());
}

/// Fetched from a NameNode by Hadoop 2.10.2, which supports only the older format.
#[test]
fn hadoop_2_credentials_round_trip_byte_for_byte() {
    let bytes = include_bytes!("credentials/java-2.10");
    let credentials = Credentials::from_bytes(bytes).unwrap();
    let token = credentials.of_kind("HDFS_DELEGATION_TOKEN").unwrap();
    assert_eq!(token.service, "127.0.0.1:21011");
    let identifier = TokenIdentifier::decode(token).unwrap().to_string();
    assert_eq!(identifier, "token 1 of alice@TESTBED.LOCAL, renewed by yarn");
    assert_eq!(*credentials.to_bytes(Format::Writable), bytes);
}

#[test]
fn token_is_copied_to_other_services_of_its_server() {
    let mut credentials = Credentials::from_bytes(include_bytes!("credentials/java-2.10")).unwrap();
    let service = "127.0.0.1:21011";
    let kind = "HDFS_DELEGATION_TOKEN";
    let services = [service, "localhost:21011"].map(str::to_owned);
    for _ in 0..2 {
        credentials.copy_to_services(service, &services);
        assert_eq!(credentials.tokens().count(), 2, "each service once");
    }
    let [old, new] = [0, 1].map(|n| credentials.for_service(kind, &services[n]).unwrap());
    assert_eq!(old.password, new.password);
    assert_eq!(old.identifier, new.identifier);
    credentials.copy_to_services("10.0.0.1:1", &["elsewhere:1".to_owned()]);
    assert_eq!(credentials.tokens().count(), 2, "no token for this service");
}

#[test]
fn java_credentials_are_read() {
    let [writable, protobuf] = JAVA.map(|bytes| Credentials::from_bytes(bytes).unwrap());
    assert_eq!(writable, protobuf);
    let shown: Vec<String> = writable
        .tokens()
        .map(|(alias, token)| {
            let identifier = TokenIdentifier::decode(token).unwrap();
            format!(
                "{alias} | {} | {} | {identifier} | {:?}",
                token.kind,
                token.service,
                identifier.expires_ms()
            )
        })
        .collect();
    expect![[r#"
         | YARN_AM_RM_TOKEN |  | master of appattempt_1700000000000_0007_000002 | None
        cl | YARN_CLIENT_TOKEN | x:1 | client bob of appattempt_1700000000000_0007_000002 | None
        ct | ContainerToken | 10.0.0.5:45454 | container_e03_1700000000000_0007_02_012345 on node node.example:45454 | Some(1700000600000)
        ha-hdfs:cluster | HDFS_DELEGATION_TOKEN | ha-hdfs:cluster | token 300 of alice@EXAMPLE, renewed by yarn | Some(1700604800000)
        nm | NMToken | 10.0.0.5:45454 | master of appattempt_1700000000000_0007_000002 on node node.example:45454 | None
        rm | RM_DELEGATION_TOKEN | 10.0.0.1:8032,10.0.0.2:8032 | token 3 of alice, fetched by oozie, renewed by yarn | Some(1700604800000)"#]].assert_eq(&shown.join("\n"));
    assert_eq!(writable.secret("größe").unwrap().expose().len(), 300);
    assert_eq!(writable.secret("job"), Some(&Secret::new(vec![1, 2, 3])));
    assert!(writable.tokens().all(|(_, token)| token.password.expose() == b"0123456789abcdefghij"));
}

#[test]
fn identifiers_are_decoded_completely() {
    let credentials = Credentials::from_bytes(JAVA[0]).unwrap();
    let of = |alias: &str| TokenIdentifier::decode(credentials.token(alias).unwrap()).unwrap();
    let text = String::from;
    let attempt = || text("appattempt_1700000000000_0007_000002");
    assert_eq!(of(""), TokenIdentifier::Master { attempt: attempt(), key: 42 });
    let node = TokenIdentifier::Node {
        attempt: attempt(),
        node: text("node.example:45454"),
        user: text("alice"),
        key: -7,
    };
    assert_eq!(of("nm"), node);
    let container = TokenIdentifier::Container {
        container: text("container_e03_1700000000000_0007_02_012345"),
        node: text("node.example:45454"),
        user: text("alice"),
        expires_ms: 1700000600000,
    };
    assert_eq!(of("ct"), container);
    assert_eq!(of("cl"), TokenIdentifier::Client { attempt: attempt(), user: text("bob") });
    let delegation = TokenIdentifier::Delegation {
        owner: text("alice"),
        renewer: text("yarn"),
        real_user: text("oozie"),
        issued_ms: 1700000000000,
        max_date_ms: 1700604800000,
        number: 3,
        key: 4,
    };
    assert_eq!(of("rm"), delegation);
    let hdfs = TokenIdentifier::Delegation {
        owner: text("alice@EXAMPLE"),
        renewer: text("yarn"),
        real_user: text(""),
        issued_ms: 1700000000000,
        max_date_ms: 1700604800000,
        number: 300,
        key: 2,
    };
    assert_eq!(of("ha-hdfs:cluster"), hdfs);
    // Old ResourceManagers used the same encoding.
    let mut old = credentials.token("ha-hdfs:cluster").unwrap().clone();
    old.kind = text("RM_DELEGATION_TOKEN");
    assert_eq!(TokenIdentifier::decode(&old), Ok(hdfs));
}

#[test]
fn invalid_identifier_is_an_error() {
    let mut token = master_token();
    token.kind = "HDFS_DELEGATION_TOKEN".into();
    let error = TokenIdentifier::decode(&token).unwrap_err().to_string();
    expect!["cannot decode the identifier of a `HDFS_DELEGATION_TOKEN` token: unknown format version 10, expected 0 or 1"]
        .assert_eq(&error);
    token.kind = "made-up".into();
    assert_eq!(TokenIdentifier::decode(&token), Ok(TokenIdentifier::Other));
}

#[test]
fn tokens_are_found_by_kind_and_service() {
    let mut credentials = Credentials::from_bytes(JAVA[0]).unwrap();
    assert_eq!(credentials.of_kind("YARN_AM_RM_TOKEN").unwrap().service, "");
    let rm = credentials.for_service("RM_DELEGATION_TOKEN", "10.0.0.2:8032");
    assert_eq!(rm.unwrap().service, "10.0.0.1:8032,10.0.0.2:8032");
    assert_eq!(credentials.for_service("RM_DELEGATION_TOKEN", "10.0.0.2:803"), None);
    credentials.remove_kind("YARN_AM_RM_TOKEN");
    assert_eq!(credentials.of_kind("YARN_AM_RM_TOKEN"), None);
    assert_eq!(credentials.tokens().count(), 5);
    assert_eq!(credentials.take_secret("job"), Some(Secret::new(vec![1, 2, 3])));
    assert_eq!(credentials.secret("job"), None);
    let mut all = small();
    all.extend(credentials);
    assert_eq!((all.tokens().count(), all.secrets().count()), (6, 2));
    assert!(!all.is_empty());
}

#[test]
fn file_is_private_and_replaced_atomically() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, "old").unwrap();
    for format in [Format::Writable, Format::Protobuf] {
        small().write(&path, format).unwrap();
        assert_eq!(Credentials::read(&path).unwrap(), small());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
    let nowhere = directory.path().join("no/such/place");
    assert!(matches!(
        small().write(&nowhere, Format::Writable),
        Err(CredentialsError::File { .. })
    ));
}

#[test]
fn oversized_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let error = Credentials::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("larger than 16 MiB"), "{error}");
}

#[test]
fn fifo_is_rejected_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let error = Credentials::read(&path).unwrap_err();
    assert!(error.to_string().ends_with("tokens`: not a file"), "{error}");
}

#[test]
fn debug_output_hides_passwords_and_secrets() {
    let mut credentials = small();
    credentials.set_secret("password", b"hunter2".to_vec());
    let shown = format!("{credentials:?} {credentials:#?}");
    assert!(!shown.contains("hunter2") && !shown.contains("0123456789abcdefghij"), "{shown}");
    assert!(!shown.contains("48, 49, 50") && !shown.contains("1, 2, 3]"), "{shown}");
}

fn check_error(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&Credentials::from_bytes(bytes).unwrap_err().to_string());
}

#[test]
fn format_errors_are_described() {
    check_error(b"", expect!["invalid credentials: missing `HDTS` header"]);
    check_error(b"HDTS", expect!["invalid credentials: unexpected end of data at byte 4"]);
    check_error(
        b"HDTS\x07",
        expect!["invalid credentials: unknown format version 7, expected 0 or 1"],
    );
    check_error(
        b"HDTS\0\x01\0\x7f",
        expect!["invalid credentials: unexpected end of data at byte 8"],
    );
    check_error(b"HDTS\0\xff", expect!["invalid credentials: invalid number at byte 5"]);
    check_error(b"HDTS\0\x01\x01\xff", expect!["invalid credentials: text at byte 6 is not UTF-8"]);
    check_error(
        b"HDTS\x01\x02\x0a\x7f",
        expect!["invalid credentials: unexpected end of data at byte 8"],
    );
    // Counts and lengths far beyond the available bytes.
    check_error(
        b"HDTS\0\x88\x7f\xff\xff\xff\xff\xff\xff\xff",
        expect!["invalid credentials: unexpected end of data at byte 14"],
    );
    let error = Credentials::read(Path::new("/nowhere/tokens")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the credentials file `/nowhere/tokens`: "), "{error}");
}

#[test]
fn trailing_bytes_are_ignored() {
    for format in [Format::Writable, Format::Protobuf] {
        let mut bytes = small().to_bytes(format).to_vec();
        bytes.extend([0; 100]);
        assert_eq!(Credentials::from_bytes(&bytes).unwrap(), small());
    }
}

#[test]
fn truncated_credentials_are_rejected() {
    for bytes in JAVA {
        for end in 0..bytes.len() {
            assert!(Credentials::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
    }
}

#[test]
fn random_credentials_round_trip() {
    for seed in 0..500 {
        let mut random = crate::random::Random::new(seed);
        let mut credentials = Credentials::default();
        for number in 0..random.below(5) {
            let token = Token {
                identifier: random.bytes(300),
                password: random.bytes(200).into(),
                kind: "k".repeat(random.below(200)),
                service: format!("sérvice{number}"),
            };
            credentials.add(format!("{number}{}", "a".repeat(random.below(300))), token);
            let secret = random.bytes(20_000);
            credentials.set_secret(format!("s{number}"), secret);
        }
        for format in [Format::Writable, Format::Protobuf] {
            let bytes = credentials.to_bytes(format);
            assert_eq!(Credentials::from_bytes(&bytes).unwrap(), credentials, "seed {seed}");
        }
    }
}

#[test]
fn mutated_credentials_are_parsed_or_rejected() {
    for seed in 0..20_000 {
        let mut random = crate::random::Random::new(seed);
        let mutated = match seed % 3 {
            0 => random.mutate(JAVA[0]),
            1 => random.mutate(JAVA[1]),
            _ => {
                let mut bytes = b"HDTS\0".to_vec();
                bytes[4] = random.below(2) as u8;
                bytes.extend(random.bytes(64));
                bytes
            }
        };
        if let Ok(credentials) = Credentials::from_bytes(&mutated) {
            for (_, token) in credentials.tokens() {
                let _ = TokenIdentifier::decode(token).map(|identifier| identifier.to_string());
            }
            for format in [Format::Writable, Format::Protobuf] {
                let again = Credentials::from_bytes(&credentials.to_bytes(format)).unwrap();
                assert_eq!(again, credentials, "seed {seed}");
            }
        }
    }
}

#[test]
fn mutated_identifiers_are_decoded_or_rejected() {
    let credentials = Credentials::from_bytes(JAVA[0]).unwrap();
    let tokens: Vec<&Token> = credentials.tokens().map(|(_, token)| token).collect();
    for seed in 0..20_000 {
        let mut random = crate::random::Random::new(seed);
        let mut token = (*random.pick(&tokens)).clone();
        token.identifier = random.mutate(&token.identifier);
        let _ = TokenIdentifier::decode(&token).map(|identifier| identifier.to_string());
    }
}
