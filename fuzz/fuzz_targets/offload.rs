//! Frames of a device, segmented and coalesced again.
#![no_main]

#[path = "../targets/offload.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
