//! Requests whose end two parsers could see at different bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{limits, run, start_server};

#[test]
fn bytes_after_an_ambiguous_head_are_no_request() {
    run(async {
        let server = start_server(limits()).await;
        let bearer = server.bearer();
        let hidden = format!("GET /who HTTP/1.1\r\n{bearer}\r\n");
        let cases = [
            (400, "content-length: 0\r\ncontent-length: 5".to_owned()),
            (400, format!("content-length: 0\r\ncontent-length: {}", hidden.len())),
            (400, format!("content-length: 0, {}", hidden.len())),
            (400, format!("content-length : {}", hidden.len())),
            (400, format!("x: y\r\n content-length: {}", hidden.len())),
            (400, format!("x: y\ncontent-length: {}", hidden.len())),
            (400, format!("x: y\rcontent-length: {}", hidden.len())),
            (400, "x: y\n\nGET /who HTTP/1.1".to_owned()),
            (411, "transfer-encoding: chunked".to_owned()),
            (411, "content-length: 0\r\ntransfer-encoding: chunked".to_owned()),
        ];
        for (status, lines) in cases {
            let mut stream = server.raw().await;
            let text = format!("PUT /length HTTP/1.1\r\n{bearer}{lines}\r\n\r\n{hidden}");
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let mut output = String::new();
            stream.read_to_string(&mut output).await.unwrap();
            assert!(output.starts_with(&format!("HTTP/1.1 {status} ")), "{lines:?}: {output}");
            assert_eq!(output.matches("HTTP/1.1").count(), 1, "{lines:?}: {output}");
        }
    });
}
