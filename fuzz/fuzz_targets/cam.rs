//! Messages of roadside units, as UPER and as JSON of an on-board unit.
#![no_main]

#[path = "../targets/cam.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
