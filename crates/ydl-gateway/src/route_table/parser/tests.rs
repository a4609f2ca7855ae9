use super::*;

fn with_service(service: &str) -> Result<RouteTable, RouteTableError> {
    parse(
        format!(r#"{{"format": 1, "version": 1, "role": "server", "service": {service}}}"#)
            .as_bytes(),
    )
}

fn with_replicas(replicas: &str) -> Result<RouteTable, RouteTableError> {
    let table =
        format!(r#"{{"format": 1, "version": 1, "role": "server", "replicas": [{replicas}]}}"#);
    parse(table.as_bytes())
}

#[test]
fn a_full_table_is_read() {
    let table = parse(
        br#"{"format": 1, "version": 7, "role": "server", "service": {
            "protocol": "http2",
            "timeouts": {"connect_ms": 1, "head_ms": 2, "idle_ms": 3, "keep_alive_ms": 4},
            "retry": {"when": "unanswered", "max": 5, "budget_percent": 6},
            "queue": {"requests": 7, "bytes": 8, "wait_ms": 9},
            "buffer_bytes": 10, "request_bytes": 11, "slow_start_ms": 12, "drain_ms": 13,
            "rate_limit": {"per_second": 14, "burst": 15}
        }, "replicas": [
            {"id": "server:1/2", "address": "[::1]:80", "revision": 3, "weight": 4, "state": "draining", "concurrency": 5},
            {"id": "server:0/1", "address": "node17.example:8080"}
        ]}"#,
    )
    .unwrap();
    expect_test::expect![[r#"
        RouteTable {
            version: 7,
            role: "server",
            service: Service {
                protocol: Http2,
                timeouts: Timeouts {
                    connect: 1ms,
                    head: 2ms,
                    idle: 3ms,
                    keep_alive: 4ms,
                },
                retry: RetryPolicy {
                    when: Unanswered,
                    max: 5,
                    budget_percent: 6,
                },
                queue: QueueLimits {
                    requests: 7,
                    bytes: 8,
                    wait: 9ms,
                },
                buffer_bytes: 10,
                request_bytes: Some(
                    11,
                ),
                slow_start: 12ms,
                rate_limit: Some(
                    RateLimit {
                        per_second: 14,
                        burst: 15,
                    },
                ),
                drain: 13ms,
            },
            replicas: [
                Replica {
                    id: "server:0/1",
                    address: "node17.example:8080",
                    revision: 0,
                    weight: 100,
                    state: Serving,
                    concurrency: 1024,
                },
                Replica {
                    id: "server:1/2",
                    address: "[::1]:80",
                    revision: 3,
                    weight: 4,
                    state: Draining,
                    concurrency: 5,
                },
            ],
        }
    "#]]
    .assert_debug_eq(&table);
}

#[test]
fn unknown_fields_are_ignored() {
    let table = with_service(r#"{"colour": "red", "retry": {"mood": 1}}"#).unwrap();
    assert_eq!(table.service, Service::default());
    assert!(with_replicas(r#"{"id": "a", "address": "h:1", "extra": {}}"#).is_ok());
}

#[test]
fn wild_values_are_refused_with_their_names() {
    let messages = [
        with_service(r#"{"timeouts": {"head_ms": 0}}"#),
        with_service(r#"{"timeouts": {"idle_ms": 18446744073709551615}}"#),
        with_service(r#"{"retry": {"when": "always"}}"#),
        with_service(r#"{"retry": {"budget_percent": 101}}"#),
        with_service(r#"{"rate_limit": {"per_second": 0}}"#),
        with_service(r#"{"timeouts": {"head_ms": -1}}"#),
        with_replicas(r#"{"id": "", "address": "h:1"}"#),
        with_replicas(r#"{"id": "a\nb", "address": "h:1"}"#),
        with_replicas(r#"{"id": "a", "address": "h"}"#),
        with_replicas(r#"{"id": "a", "address": "h:0"}"#),
        with_replicas(r#"{"id": "a", "address": "h:+1"}"#),
        with_replicas(r#"{"id": "a", "address": "h:1", "concurrency": 0}"#),
        with_replicas(r#"{"id": "a", "address": "h:1"}, {"id": "a", "address": "h:2"}"#),
        parse(br#"{"format": 2, "version": 1, "role": "server"}"#),
        parse(b"{"),
        parse(&vec![b' '; BYTES_MAX + 1]),
    ];
    let messages: Vec<_> =
        messages.into_iter().map(|table| table.unwrap_err().to_string()).collect();
    expect_test::expect![[r#"
        `service.timeouts.head_ms` is `0`: expected 1 to 86400000
        `service.timeouts.idle_ms` is `18446744073709551615`: expected 1 to 86400000
        `service.retry.when` is `always`: expected `never` or `unsent` or `unanswered`
        `service.retry.budget_percent` is `101`: expected 0 to 100
        `service.rate_limit.per_second` is `0`: expected 1 to 1048576
        the route table is not valid: invalid value: integer `-1`, expected u64 at line 1 column 84
        `replicas[0].id` is ``: expected 1 to 256 visible ASCII characters without quotes
        `replicas[0].id` is `a\nb`: expected 1 to 256 visible ASCII characters without quotes
        `replicas[0].address` is `h`: expected HOST:PORT
        `replicas[0].address` is `h:0`: expected HOST:PORT
        `replicas[0].address` is `h:+1`: expected HOST:PORT
        `replicas[0].concurrency` is `0`: expected 1 to 1048576
        the replica `a` occurs twice
        the route table has format 2: this gateway reads format 1
        the route table is not valid: EOF while parsing an object at line 1 column 1
        the route table has 16777217 bytes: at most 16777216 are allowed"#]]
    .assert_eq(&messages.join("\n"));
}
