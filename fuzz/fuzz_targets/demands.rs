//! Lines of the demand socket.
#![no_main]

#[path = "../targets/demands.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
