//! Two engines of the tunnel and a link with arbitrary behaviour.
#![no_main]

#[path = "../../crates/core/tests/chaos/mod.rs"]
mod chaos;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::pair(script));
