use super::*;
use crate::proto::common::UserInformationProto;
use crate::proto::common::rpc_sasl_proto::SaslState;
use crate::security::text::from_hex;

const CLIENT: ClientId = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[test]
fn connection_header_matches_hadoop() {
    assert_eq!(connection_header(false).to_vec(), from_hex("68727063090000"));
    let negotiate = RpcSaslProto { state: SaslState::Negotiate.into(), ..RpcSaslProto::default() };
    let opening = [&connection_header(true)[..], &sasl(&negotiate)].concat();
    let expected = from_hex("687270630900df 0000000e 0a08021000184122002801 021001");
    assert_eq!(opening, expected);
}

#[test]
fn connection_context_contains_user_and_protocol() {
    let user_info =
        Some(UserInformationProto { effective_user: Some("alice".into()), real_user: None });
    let protocol = Some(Protocol::APPLICATION_CLIENT.name().to_owned());
    let bytes = context(&CLIENT, &IpcConnectionContextProto { user_info, protocol });
    let expected = "0000005d1a0802100018052210000102030405060708090a0b0c0d0e0f2801
        4112070a05616c6963651a36
        6f72672e6170616368652e6861646f6f702e7961726e2e6170692e
        4170706c69636174696f6e436c69656e7450726f746f636f6c5042";
    assert_eq!(*bytes, from_hex(expected));
}

#[test]
fn request_contains_method_and_protocol() {
    let bytes = request(&CLIENT, 0, 0, Protocol::APPLICATION_CLIENT, "getNewApplication", &[]);
    let expected = "0000006a1a0802100018002210000102030405060708090a0b0c0d0e0f2800
        4d0a116765744e65774170706c69636174696f6e1236
        6f72672e6170616368652e6861646f6f702e7961726e2e6170692e
        4170706c69636174696f6e436c69656e7450726f746f636f6c5042180100";
    assert_eq!(*bytes, from_hex(expected));
}

#[test]
fn ping_has_no_body() {
    let expected = "0000001b1a0802100018072210000102030405060708090a0b0c0d0e0f2801";
    assert_eq!(ping(&CLIENT), from_hex(expected));
}

/// A response of two bytes to call 3.
const RESPONSE: &[u8] = &[0, 0, 0, 8, 4, 8, 3, 16, 0, 2, 8, 1];

#[test]
fn frames_are_decoded_across_any_split() {
    let stream = RESPONSE.repeat(3);
    for cut in 0..stream.len() {
        let mut decoder = FrameDecoder::new(100);
        let mut frames = Vec::new();
        for part in [&stream[..cut], &stream[cut..]] {
            decoder.extend(part);
            while let Some(frame) = decoder.next().expect("valid frames") {
                frames.push(frame);
            }
        }
        assert_eq!(frames, [&RESPONSE[4..]; 3], "cut at {cut}");
        assert!(!decoder.is_mid_frame());
    }
    let response = Response::parse(Bytes::from_static(&RESPONSE[4..])).expect("valid");
    assert_eq!(response.header.call_id, 3);
    assert_eq!(&response.body().expect("a body")[..], [8, 1]);
}

#[test]
fn oversized_frame_is_rejected_by_its_length_prefix() {
    let mut decoder = FrameDecoder::new(7);
    decoder.extend(&RESPONSE[..4]);
    let error = decoder.next().expect_err("longer than the limit").to_string();
    assert_eq!(error, "frame of 8 bytes exceeds the limit of 7");
}

#[test]
fn announced_length_allocates_no_memory() {
    let mut decoder = FrameDecoder::new(1 << 30);
    decoder.extend(&(1u32 << 30).to_be_bytes());
    assert_eq!(decoder.next(), Ok(None));
    assert!(decoder.read_buffer().capacity() < 1 << 20);
}

#[test]
fn other_protocols_are_detected() {
    for (bytes, protocol) in [
        (&b"HTTP/1.1 400"[..], "web port"),
        (&[0xff, 0xff, 0xff, 0xff, 0, 0], "older version"),
        (&[0x15, 0x03, 0x01, 0x00, 0x02], "TLS"),
    ] {
        let mut decoder = FrameDecoder::new(1 << 20);
        decoder.extend(bytes);
        let error = decoder.next().expect_err(protocol).to_string();
        assert!(error.contains(protocol), "{error}");
    }
}

#[test]
fn truncated_response_is_rejected_or_has_no_body() {
    let whole = Bytes::from_static(&RESPONSE[4..]);
    for end in 0..whole.len() {
        if let Ok(response) = Response::parse(whole.slice(..end)) {
            assert!(response.body().is_err(), "cut at {end}");
        }
    }
}

#[test]
fn parsers_accept_arbitrary_bytes() {
    let mut bytes = crate::noise::Noise::new(7);
    for round in 0..20_000 {
        let frame = if round % 2 == 0 { bytes.any(64) } else { bytes.mutated(&RESPONSE[4..]) };
        if let Ok(response) = Response::parse(Bytes::from(frame.clone())) {
            let _ = response.sasl();
        }
        let mut decoder = FrameDecoder::new(32);
        decoder.extend(&frame);
        while let Ok(Some(frame)) = decoder.next() {
            assert!(frame.len() <= 32);
        }
    }
}
