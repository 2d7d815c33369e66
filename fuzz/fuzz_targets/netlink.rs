//! What the kernel says, or somebody in its place.
#![no_main]

#[path = "../targets/netlink.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
