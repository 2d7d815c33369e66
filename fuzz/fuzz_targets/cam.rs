//! Messages of roadside units, from the air and from an on-board unit.
#![no_main]

#[path = "../targets/cam.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
