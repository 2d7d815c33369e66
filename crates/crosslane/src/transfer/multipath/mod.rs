//! Sending and receiving objects over a TCP connection for each path: feeds the engines of
//! `core::transfer::multipath` with bytes, digests and statistics of the kernel.
//!
//! The digest of an object is the SHA-256 over the SHA-256 of each of its pieces, in order: pieces are read
//! in any order.

use std::fs::File;
use std::io::{self, Read};

mod link;
pub mod receiving;
pub mod sending;

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
