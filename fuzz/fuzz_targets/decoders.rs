//! Decoders of the tunnel's datagrams: GRE, its key, control messages.
#![no_main]

#[path = "../targets/decoders.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
