//! Arbitrary datagrams into a gateway: unencrypted, encrypted, and RFC 8086 only.
#![no_main]

#[path = "../targets/end.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
