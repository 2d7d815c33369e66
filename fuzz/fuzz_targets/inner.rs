//! Processing of inner packets of the tunnel.
#![no_main]

#[path = "../targets/inner.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
