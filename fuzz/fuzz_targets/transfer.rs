//! A malicious peer of a transfer.
#![no_main]

#[path = "../targets/transfer.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
