use super::*;

/// Checks the bytes at once and byte by byte, which must give the same result.
fn check(bytes: &[u8]) -> Result<State, FramingError> {
    let mut whole = Framing::new();
    let result = whole.check(bytes).map(|()| whole.state);
    let mut single = Framing::new();
    let by_bytes = bytes.iter().try_for_each(|byte| single.check(&[*byte]));
    assert_eq!(by_bytes.map(|()| single.state), result);
    result
}

fn request(headers: &str) -> Result<State, FramingError> {
    check(format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes())
}

#[test]
fn bodies_are_followed_by_the_next_request() {
    let one = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let two = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    let three = "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n";
    let all = [one, two, three].concat();
    assert_eq!(check(all.as_bytes()), Ok(State::Head));
    assert_eq!(check(&all.as_bytes()[..one.len() - 1]), Ok(State::Body { rest: 1 }));
}

#[test]
fn ambiguous_lengths_are_refused() {
    use FramingError::*;
    for (headers, error) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", TwoLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", TwoLengths),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", ContentLength),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", ContentLength),
        ("Content-Length: 5, 5\r\n", ContentLength),
        ("Content-Length: +5\r\n", ContentLength),
        ("Content-Length: -5\r\n", ContentLength),
        ("Content-Length: 0x5\r\n", ContentLength),
        ("Content-Length:\r\n", ContentLength),
        ("Content-Length: 99999999999999999999999\r\n", ContentLength),
        ("Transfer-Encoding: xchunked\r\n", TransferEncoding),
        ("Transfer-Encoding: gzip, chunked\r\n", TransferEncoding),
        ("Transfer-Encoding: chunked, identity\r\n", TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
        ("Transfer-Encoding: \x0bchunked\r\n", Syntax),
        ("Transfer-Encoding : chunked\r\n", Syntax),
        (" Transfer-Encoding: chunked\r\n", Syntax),
        ("X: a\r\n Content-Length: 5\r\n", Syntax),
        ("X: a\nContent-Length: 5\r\n", LineEnd),
        ("X: a\rContent-Length: 5\r\n", LineEnd),
        ("X: a\0b\r\n", LineEnd),
        ("Host: b\r\n", Host),
    ] {
        assert_eq!(request(headers), Err(error), "{headers:?}");
    }
    assert_eq!(check(b"GET / HTTP/1.1\r\n\r\n"), Err(Host));
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(check(old), Err(TransferEncoding));
}

#[test]
fn malformed_chunks_are_refused() {
    for body in [
        "5\r\nhelloX\n",
        "5\nhello\r\n",
        "-5\r\n",
        "0x5\r\n",
        "\r\n",
        "5 5\rX\r\n",
        "g\r\n",
        "11111111111111111\r\n",
        "5x\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let error = check([head, body].concat().as_bytes()).unwrap_err();
        assert!(
            matches!(error, FramingError::Chunk | FramingError::LineEnd),
            "{body:?}: {error:?}"
        );
    }
}

#[test]
fn lengths_are_limited() {
    let long = "x".repeat(HEAD_MAX);
    assert_eq!(request(&format!("X: {long}\r\n")), Err(FramingError::TooLong));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let line = format!("{head}1;{long}");
    assert_eq!(check(line.as_bytes()), Err(FramingError::TooLong));
    assert_eq!(check(format!("{head}0\r\nX: {long}").as_bytes()), Err(FramingError::TooLong));
    let many = "X: 1\r\n".repeat(HEADERS_MAX + 1);
    assert_eq!(request(&many), Err(FramingError::Syntax));
}

#[test]
fn an_upgraded_connection_is_not_checked() {
    let bytes =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\0\n\r\xff";
    assert_eq!(check(bytes), Ok(State::Opaque));
}
