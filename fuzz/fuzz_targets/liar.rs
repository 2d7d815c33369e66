//! A malicious authenticated vehicle at a gateway with three honest ones.
#![no_main]

#[path = "../targets/liar.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
