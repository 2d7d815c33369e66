//! An engine of the tunnel that is told anything.
#![no_main]

#[path = "../../crates/core/tests/chaos/mod.rs"]
mod chaos;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::stranger(script));
