//! The beginning of a connection to a receiver of files.
#![no_main]

#[path = "../targets/handshake.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
