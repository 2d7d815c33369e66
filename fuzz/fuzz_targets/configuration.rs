//! Configurations of an agent and scenarios.
#![no_main]

#[path = "../targets/configuration.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
