//! An engine of the tunnel whose peer sends false feedback.
#![no_main]

#[path = "../../crates/core/tests/chaos/mod.rs"]
mod chaos;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::liar(script));
