//! An engine of the tunnel whose other end lies about what it sees.
#![no_main]

#[path = "../../crates/core/tests/chaos/mod.rs"]
mod chaos;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::liar(script));
