//! An engine of the tunnel with arbitrary input.
#![no_main]

#[path = "../../crates/core/tests/chaos/mod.rs"]
mod chaos;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::stranger(script));
