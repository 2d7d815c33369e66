//! The records of an encrypted connection: a length of two bytes, and an encrypted part of the stream with its tag.
//!
//! Order and replay are checked by the counter of Noise (section 5.1), which no record carries: one that is lost,
//! repeated or exchanged does not open. What is cut off shows as a connection that broke.

use std::io::{self, ErrorKind};

use snow::TransportState;

/// Longest part of the stream in a record, in bytes: a piece with its header fits.
pub(super) const MAX_PART_BYTES: usize = 32_768;
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// Bytes read from the socket at a time.
const INBOX_BYTES: usize = 256 * 1024;
/// A direction has another key after this many records (Noise, section 11.3): 34 GB at most, where TLS allows 388 with
/// one key of AES-GCM (RFC 8446, section 5.5).
const REKEY_RECORDS: u32 = 1 << 20;

pub(super) struct Cipher {
    noise: TransportState,
    /// Received bytes; those from `read` to `filled` are not opened.
    inbox: Vec<u8>,
    read: usize,
    filled: usize,
    /// Records since the last change of the key of each direction.
    sealed: u32,
    opened: u32,
}

impl Cipher {
    pub(super) fn new(noise: TransportState) -> Cipher {
        Cipher { noise, inbox: Vec::new(), read: 0, filled: 0, sealed: 0, opened: 0 }
    }

    /// Appends the records of a part of the stream.
    pub(super) fn seal(&mut self, plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        for part in plain.chunks(MAX_PART_BYTES) {
            let (begin, length) = (into.len() + LENGTH_BYTES, part.len() + TAG_BYTES);
            into.extend((length as u16).to_be_bytes());
            into.resize(begin + length, 0);
            let sealed = self.noise.write_message(part, &mut into[begin..]);
            sealed.map_err(|cause| io::Error::other(cause.to_string()))?;
            self.sealed += 1;
            if self.sealed == REKEY_RECORDS {
                self.noise.rekey_outgoing();
                self.sealed = 0;
            }
        }
        Ok(())
    }

    /// Where received bytes are to be put; [`fill`](Self::fill) says how many are.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.inbox.resize(INBOX_BYTES, 0);
        self.inbox.copy_within(self.read..self.filled, 0);
        (self.read, self.filled) = (0, self.filled - self.read);
        &mut self.inbox[self.filled..]
    }

    pub(super) fn fill(&mut self, count: usize) {
        self.filled += count;
    }

    /// Opens whole records while the longest one fits; the number of bytes.
    ///
    /// # Errors
    /// A record is forged, damaged, repeated or of a wrong length.
    pub(super) fn open(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while into.len() - count >= MAX_PART_BYTES {
            let waiting = &self.inbox[self.read..self.filled];
            let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else { break };
            let length = usize::from(u16::from_be_bytes(*length));
            if !(TAG_BYTES + 1..=TAG_BYTES + MAX_PART_BYTES).contains(&length) {
                return Err(io::Error::new(ErrorKind::InvalidData, "a record has a wrong length"));
            }
            let Some(record) = rest.get(..length) else { break };
            let opened = self.noise.read_message(record, &mut into[count..]);
            let forged = |_| io::Error::new(ErrorKind::InvalidData, "a record is forged, damaged or repeated");
            count += opened.map_err(forged)?;
            self.read += LENGTH_BYTES + length;
            self.opened += 1;
            if self.opened == REKEY_RECORDS {
                self.noise.rekey_incoming();
                self.opened = 0;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
