//! Sending and receiving objects over a TCP connection for each path: feeds the engines of
//! `core::transfer::multipath` with bytes, digests and statistics of the kernel.

use std::fs::File;
use std::io::{self, Read};

mod cipher;
mod digests;
mod greeting;
pub mod keys;
mod link;
pub mod receiving;
pub mod sending;
mod stream;

/// Pieces read from the disk between two exchanges with the peer: 1 MiB.
const CATCH_UP_PIECES: usize = 64;

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
