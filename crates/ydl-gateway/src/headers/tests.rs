use super::*;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    headers
}

fn prepared(lines: &[(&str, &str)]) -> Vec<String> {
    let mut headers = headers(lines);
    let client = IpAddr::from([10, 0, 0, 1]);
    let host = HeaderValue::from_static("models.example");
    prepare_request(&mut headers, client, Scheme::Https, &host, &mut Random::seeded(1));
    let lines = headers.iter();
    let mut lines: Vec<_> =
        lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[test]
fn connection_fields_are_removed_and_the_gateways_are_added() {
    let lines = prepared(&[
        ("connection", "close, X-Secret, Host"),
        ("x-secret", "1"),
        ("keep-alive", "1"),
        ("proxy-authorization", "x"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip, trailers"),
        ("expect", "100-continue"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "5.6.7.8"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-host", "evil"),
        ("content-type", "text/plain"),
    ]);
    expect_test::expect![[r#"
        content-type: text/plain
        cookie: a=1; b=2
        te: trailers
        traceparent: 00-f893a2eefb32555f71c18690ee42c90b-71bb54d8d101b5b9-00
        x-forwarded-for: 1.2.3.4, 5.6.7.8, 10.0.0.1
        x-forwarded-host: models.example
        x-forwarded-proto: https
        x-request-id: 910a2dec89025cc1beeb8da1658eec67"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn valid_ids_are_passed_on_and_others_replaced() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let has = |lines: &[(&str, &str)], line: &str| prepared(lines).contains(&line.to_owned());
    assert!(has(&[("traceparent", trace)], &format!("traceparent: {trace}")));
    assert!(has(&[("x-request-id", "mine-1")], "x-request-id: mine-1"));
    for wrong in [
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "x",
    ] {
        assert!(!has(&[("traceparent", wrong)], &format!("traceparent: {wrong}")));
    }
    assert!(!has(
        &[("traceparent", trace), ("traceparent", trace)],
        &format!("traceparent: {trace}")
    ));
    let long = "x".repeat(129);
    for wrong in [&long, "a b", ""] {
        assert!(!has(&[("x-request-id", wrong)], &format!("x-request-id: {wrong}")));
    }
}

#[test]
fn a_target_is_unambiguous() {
    let of = |uri: &str, hosts: &[&str]| {
        let lines: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let uri = uri.parse().unwrap();
        target(&Method::GET, &uri, Version::HTTP_11, &headers(&lines))
            .map(|target| format!("{} {}", target.host.to_str().unwrap(), target.path))
    };
    assert_eq!(of("/a?b", &["h"]).as_deref(), Ok("h /a?b"));
    assert_eq!(of("http://h:1/a", &["h:1"]).as_deref(), Ok("h:1 /a"));
    assert_eq!(of("http://h/a", &[]).as_deref(), Ok("h /a"));
    assert_eq!(of("*", &["h"]).as_deref(), Ok("h *"));
    for (uri, hosts) in [
        ("/", &[][..]),
        ("/", &["a", "b"]),
        ("http://h/a", &["g"]),
        ("/", &["a@b"]),
        ("/", &["a/b"]),
        ("/", &[""]),
        ("h:1", &["h"]),
    ] {
        assert!(of(uri, hosts).is_err(), "{uri} {hosts:?}");
    }
}

#[test]
fn only_upgrades_over_http_1_1_are_passed_on() {
    let websocket = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
    assert_eq!(upgrade(Version::HTTP_11, &websocket).unwrap(), "websocket");
    assert_eq!(upgrade(Version::HTTP_2, &websocket), None);
    assert_eq!(upgrade(Version::HTTP_11, &headers(&[("upgrade", "websocket")])), None);
    let h2c = headers(&[("connection", "upgrade"), ("upgrade", "h2c")]);
    assert_eq!(upgrade(Version::HTTP_11, &h2c), None);
}
