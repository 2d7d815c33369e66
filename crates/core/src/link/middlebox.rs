//! A middlebox on a link that does not let MPTCP pass: it removes MPTCP's options from TCP segments, or drops the SYNs that
//! have them (RFC 8684, section 3.7 and appendix; Honda et al., *Is it still possible to extend TCP?*, IMC 2011).

use crate::packet::checksum::changed;
use crate::packet::ip::{Fragment, IpView, SYN, TCP};

/// Kind of MPTCP's option (RFC 8684, section 3).
const MPTCP: u8 = 30;
/// Kind of the option that fills the place of a removed one (RFC 9293, section 3.1).
const NOP: u8 = 1;
/// Bytes of a TCP header without options.
const HEADER_BYTES: usize = 20;

/// What a middlebox does, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middlebox {
    /// It removes MP_CAPABLE: connections that begin over the link are plain TCP.
    StripsCapable,
    /// It removes MP_JOIN: no connection gets a further subflow over the link.
    StripsJoin,
    /// It removes every option of MPTCP.
    StripsMptcp,
    /// It drops SYNs with MP_CAPABLE.
    DropsCapable,
    /// It drops SYNs with MP_JOIN.
    DropsJoin,
}

/// Subtype of an option of MPTCP (RFC 8684, section 8).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subtype {
    Capable,
    Join,
    Other,
}

impl Middlebox {
    /// Every behaviour, by its word in scenarios.
    pub const ALL: [(&str, Middlebox); 5] = [
        ("strips-mp-capable", Middlebox::StripsCapable),
        ("strips-mp-join", Middlebox::StripsJoin),
        ("strips-mptcp", Middlebox::StripsMptcp),
        ("drops-mp-capable", Middlebox::DropsCapable),
        ("drops-mp-join", Middlebox::DropsJoin),
    ];

    /// Its word in scenarios.
    pub fn word(self) -> &'static str {
        let (word, _) = Middlebox::ALL[self as usize];
        word
    }

    /// Applies it to an IP packet, whose options it may change; false: the packet is dropped. What is not a TCP segment
    /// passes unchanged.
    pub fn passes(self, packet: &mut [u8]) -> bool {
        let Some(mut packet) = IpView::parse(packet) else { return true };
        if packet.protocol() != TCP || packet.fragment() == Fragment::Later {
            return true;
        }
        let start = packet.layout.payload;
        let tcp = &mut packet.packet_mut()[start..];
        let Some(&[offset, flags]) = tcp.get(12..14) else { return true };
        let end = (usize::from(offset >> 4) * 4).min(tcp.len());
        let mut at = HEADER_BYTES;
        while let Some((kind, next)) = option(tcp, at, end) {
            if kind == MPTCP && self.concerns(subtype(tcp, at, next)) {
                if !self.strips() && flags & SYN != 0 {
                    return false;
                }
                if self.strips() {
                    (at..next).for_each(|place| replace(tcp, place, NOP));
                }
            }
            at = next;
        }
        true
    }

    fn strips(self) -> bool {
        !matches!(self, Middlebox::DropsCapable | Middlebox::DropsJoin)
    }

    fn concerns(self, subtype: Subtype) -> bool {
        match self {
            Middlebox::StripsCapable | Middlebox::DropsCapable => subtype == Subtype::Capable,
            Middlebox::StripsJoin | Middlebox::DropsJoin => subtype == Subtype::Join,
            Middlebox::StripsMptcp => true,
        }
    }
}

/// Kind of the option at an offset, and the offset of the next one; `None` after the last.
fn option(tcp: &[u8], at: usize, end: usize) -> Option<(u8, usize)> {
    match *tcp.get(at..end)? {
        [] | [0, ..] => None,
        [NOP, ..] => Some((NOP, at + 1)),
        // A length below 2 would never advance.
        [kind, length, ..] if length >= 2 => Some((kind, (at + usize::from(length)).min(end))),
        _ => None,
    }
}

fn subtype(tcp: &[u8], at: usize, next: usize) -> Subtype {
    match tcp[at..next].get(2).map(|byte| byte >> 4) {
        Some(0) => Subtype::Capable,
        Some(1) => Subtype::Join,
        _ => Subtype::Other,
    }
}

/// Replaces a byte of a TCP header, and updates the checksum.
fn replace(tcp: &mut [u8], at: usize, byte: u8) {
    let word = |byte: u8| if at.is_multiple_of(2) { u16::from(byte) << 8 } else { u16::from(byte) };
    let checksum = changed(u16::from_be_bytes([tcp[16], tcp[17]]), word(tcp[at]), word(byte));
    tcp[at] = byte;
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::checksum::Sum;
    use alloc::vec::Vec;

    const CAPABLE: [u8; 4] = [30, 4, 0x01, 1];
    const JOIN: [u8; 12] = [30, 12, 0x10, 5, 1, 2, 3, 4, 9, 8, 7, 6];
    const DSS: [u8; 8] = [30, 8, 0x20, 1, 0, 0, 0, 7];

    /// A TCP segment over IPv4 with these options, at an odd offset after a NOP.
    fn segment(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut padded = Vec::from([NOP]);
        padded.extend(options);
        padded.resize(padded.len().next_multiple_of(4), NOP);
        let mut tcp = Vec::from([0x80, 0, 0x23, 0x28, 0, 0, 0, 1, 0, 0, 0, 0, 0, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp[12] = (((HEADER_BYTES + padded.len()) / 4) << 4) as u8;
        tcp.extend(padded);
        let mut packet = Vec::from([0x45, 0, 0, (20 + tcp.len()) as u8, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
        packet.extend([10, 1, 0, 2, 10, 255, 0, 1]);
        let sum = checksum(&packet, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        packet.extend(tcp);
        packet
    }

    fn checksum(ip: &[u8], tcp: &[u8]) -> u16 {
        Sum::default().with(tcp).with_pseudo_header(&ip[12..20], TCP, tcp.len()).checksum()
    }

    /// What is left of the options; `None`: the segment is dropped.
    fn after(middlebox: Middlebox, flags: u8, options: &[u8]) -> Option<Vec<u8>> {
        let mut packet = segment(flags, options);
        let passes = middlebox.passes(&mut packet);
        assert_eq!(checksum(&packet[..20], &packet[20..]), 0, "the checksum is valid");
        passes.then(|| packet[41..41 + options.len()].to_vec())
    }

    #[test]
    fn a_removed_option_becomes_nops_and_others_stay() {
        for (middlebox, capable, join, dss) in [
            (Middlebox::StripsCapable, true, false, false),
            (Middlebox::StripsJoin, false, true, false),
            (Middlebox::StripsMptcp, true, true, true),
        ] {
            for (option, is_removed) in [(&CAPABLE[..], capable), (&JOIN, join), (&DSS, dss)] {
                let mut options = option.to_vec();
                options.extend([3, 3, 7]);
                let mut expected = if is_removed { alloc::vec![NOP; option.len()] } else { option.to_vec() };
                expected.extend([3, 3, 7]);
                assert_eq!(after(middlebox, SYN, &options), Some(expected), "{middlebox:?}");
            }
        }
    }

    #[test]
    fn only_syns_are_dropped() {
        assert_eq!(after(Middlebox::DropsJoin, SYN, &JOIN), None);
        assert_eq!(after(Middlebox::DropsCapable, SYN, &CAPABLE), None);
        assert_eq!(after(Middlebox::DropsJoin, 0x10, &JOIN), Some(JOIN.to_vec()));
        assert_eq!(after(Middlebox::DropsJoin, SYN, &CAPABLE), Some(CAPABLE.to_vec()));
        assert_eq!(after(Middlebox::DropsCapable, SYN, &JOIN), Some(JOIN.to_vec()));
    }

    #[test]
    fn arbitrary_bytes_pass_without_a_panic() {
        let mut rng = crate::rng::Rng::new(1, "middlebox");
        for length in 0..200 {
            let mut bytes = segment(SYN, &JOIN);
            bytes.truncate(length);
            for byte in bytes.iter_mut().skip(20) {
                *byte = (rng.uniform() * 256.0) as u8;
            }
            for (word, middlebox) in Middlebox::ALL {
                assert_eq!(middlebox.word(), word);
                middlebox.passes(&mut bytes.clone());
            }
        }
    }
}
