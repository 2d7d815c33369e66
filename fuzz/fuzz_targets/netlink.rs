//! Arbitrary netlink messages.
#![no_main]

#[path = "../targets/netlink.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
