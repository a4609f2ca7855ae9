#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ydl_gateway::fuzzing::framing(bytes));
