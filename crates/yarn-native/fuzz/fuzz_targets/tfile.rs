#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| yarn_native::fuzzing::tfile(bytes));
