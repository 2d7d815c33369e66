//! Datagrams of anybody into a gateway: plain, encrypted, and standard.
#![no_main]

#[path = "../targets/end.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
