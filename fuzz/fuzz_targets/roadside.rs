//! Messages between a controller, and units and vehicles, and the frames that carry them.
#![no_main]

#[path = "../targets/roadside.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
