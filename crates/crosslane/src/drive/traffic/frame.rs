//! Messages in a byte stream: a header, then a pattern that the receiver checks
//! byte by byte.

use crate::error::Error;

/// Bytes of the header: magic, length, number, time of sending.
pub const HEADER_BYTES: usize = 24;
/// The largest message.
pub const SIZE_MAX_BYTES: usize = 1 << 20;

const MAGIC: u32 = 0x6372_6f73;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message with its header.
    pub size_bytes: u32,
    /// Number, from 0.
    pub number: u64,
    /// When its write began.
    pub sent_ns: u64,
}

/// Fills `message` with the header and the pattern of its number.
pub fn fill(message: &mut [u8], number: u64, sent_ns: u64) {
    let (header, body) = message.split_at_mut(HEADER_BYTES);
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..].copy_from_slice(&sent_ns.to_le_bytes());
    let mut pattern = Pattern::new(number);
    for chunk in body.chunks_mut(8) {
        chunk.copy_from_slice(&pattern.next()[..chunk.len()]);
    }
}

/// Checks every byte of a complete message and returns its header.
pub fn check(message: &[u8]) -> Result<Header, &'static str> {
    let header = read_header(message).ok_or("it is shorter than its header")?;
    if header.0 != MAGIC || header.1.size_bytes as usize != message.len() {
        return Err("its header is not the one sent");
    }
    let mut pattern = Pattern::new(header.1.number);
    let intact = message[HEADER_BYTES..].chunks(8).all(|chunk| *chunk == pattern.next()[..chunk.len()]);
    if intact { Ok(header.1) } else { Err("a byte differs from the one sent") }
}

/// Magic and header at the beginning of these bytes.
fn read_header(bytes: &[u8]) -> Option<(u32, Header)> {
    let field = |from: usize| Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?));
    let first = field(0)?;
    Some((first as u32, Header { size_bytes: (first >> 32) as u32, number: field(8)?, sent_ns: field(16)? }))
}

/// The stream differs from the one sent, from this byte on.
#[derive(Debug)]
pub struct Corrupt {
    offset: u64,
    what: &'static str,
}

impl From<Corrupt> for Error {
    fn from(Corrupt { offset, what }: Corrupt) -> Error {
        Error::failure("checking received data", format!("{what} at byte {offset} of the stream"))
            .with_remedy("report this, since TCP must prevent it")
    }
}

/// Splits a stream into messages and checks every byte. Buffers at most one
/// message.
#[derive(Default)]
pub struct Checker {
    partial: Vec<u8>,
    offset: u64,
    next_number: u64,
}

impl Checker {
    /// Processes the next bytes of the stream and calls `complete` for each message
    /// that they complete.
    pub fn take(&mut self, mut bytes: &[u8], mut complete: impl FnMut(Header)) -> Result<(), Corrupt> {
        while !bytes.is_empty() {
            let needed =
                if self.partial.len() < HEADER_BYTES { HEADER_BYTES } else { self.header()?.size_bytes as usize };
            let part = bytes.len().min(needed - self.partial.len());
            self.partial.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            if self.partial.len() < HEADER_BYTES {
                continue;
            }
            let header = self.header()?;
            if self.partial.len() == header.size_bytes as usize {
                self.check_body(header.number)?;
                complete(header);
                self.offset += u64::from(header.size_bytes);
                self.next_number += 1;
                self.partial.clear();
            }
        }
        Ok(())
    }

    fn header(&self) -> Result<Header, Corrupt> {
        let Some((magic, header)) = read_header(&self.partial) else {
            return Err(self.corrupt(0, "a header is truncated"));
        };
        let size_bytes = header.size_bytes;
        let size_fits = (HEADER_BYTES..=SIZE_MAX_BYTES).contains(&(size_bytes as usize));
        match () {
            () if magic != MAGIC => Err(self.corrupt(0, "a header is missing")),
            () if !size_fits => Err(self.corrupt(4, "the message's length is invalid")),
            () if header.number != self.next_number => Err(self.corrupt(8, "a message is missing or duplicated")),
            () => Ok(header),
        }
    }

    fn check_body(&self, number: u64) -> Result<(), Corrupt> {
        let mut pattern = Pattern::new(number);
        for (place, chunk) in self.partial[HEADER_BYTES..].chunks(8).enumerate() {
            if let Some(within) = chunk.iter().zip(pattern.next()).position(|(&got, sent)| got != sent) {
                return Err(self.corrupt(HEADER_BYTES + place * 8 + within, "a byte differs from the one sent"));
            }
        }
        Ok(())
    }

    fn corrupt(&self, within: usize, what: &'static str) -> Corrupt {
        Corrupt { offset: self.offset + within as u64, what }
    }
}

/// xorshift64* (Vigna 2016), seeded by the message's number.
struct Pattern(u64);

impl Pattern {
    fn new(number: u64) -> Pattern {
        Pattern(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> [u8; 8] {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(sizes: &[usize]) -> Vec<u8> {
        let mut all = Vec::new();
        for (number, &size) in sizes.iter().enumerate() {
            let mut message = vec![0; size];
            fill(&mut message, number as u64, 7 * number as u64);
            all.extend(message);
        }
        all
    }

    #[test]
    fn messages_are_complete_however_the_stream_is_split() {
        let sizes = [24, 1000, 25, 70_000, 31];
        let bytes = stream(&sizes);
        for step in [1, 7, 1424, 65_536] {
            let mut checker = Checker::default();
            let mut headers = Vec::new();
            for part in bytes.chunks(step) {
                checker.take(part, |header| headers.push(header)).unwrap();
            }
            let got: Vec<usize> = headers.iter().map(|header| header.size_bytes as usize).collect();
            assert_eq!(got, sizes, "split into {step}");
            assert_eq!(headers[3].sent_ns, 21);
            assert_eq!(checker.offset, bytes.len() as u64);
        }
    }

    #[test]
    fn one_wrong_byte_is_found_at_its_offset() {
        for wrong in [0, 1030, 1500] {
            let mut bytes = stream(&[1000, 1000]);
            bytes[wrong] ^= 0x10;
            let error = Checker::default().take(&bytes, |_| ()).unwrap_err();
            assert_eq!(error.offset, wrong as u64);
        }
    }

    #[test]
    fn a_missing_message_is_found() {
        let bytes = stream(&[100, 100, 100]);
        let mut checker = Checker::default();
        checker.take(&bytes[..100], |_| ()).unwrap();
        assert!(checker.take(&bytes[200..], |_| ()).is_err());
    }

    #[test]
    fn a_damaged_datagram_is_reported() {
        let mut message = vec![0; 100];
        fill(&mut message, 7, 9);
        assert_eq!(check(&message).map(|header| (header.number, header.sent_ns)), Ok((7, 9)));
        for wrong in [0, 5, 24, 99] {
            let mut damaged = message.clone();
            damaged[wrong] ^= 1;
            assert!(check(&damaged).is_err(), "byte {wrong}");
        }
        assert!(check(&message[..23]).is_err() && check(&message[..99]).is_err());
    }
}
