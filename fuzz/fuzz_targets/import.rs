//! Public recordings and traces.
#![no_main]

#[path = "../targets/import.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
