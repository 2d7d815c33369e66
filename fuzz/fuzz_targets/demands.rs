//! Lines of programs that say what is due by when.
#![no_main]

#[path = "../targets/demands.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
