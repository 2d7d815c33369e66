//! Netlink framing: encodes requests, decodes messages and their attributes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator,
};
use nix::errno::Errno;

/// Length of a netlink header in bytes.
pub(super) const HEADER_LEN: usize = 16;
/// Types below this one are netlink's control messages (acknowledgement, end of a dump).
pub(super) const FIRST_PROTOCOL_TYPE: u16 = 16;
/// Attributes of an extended acknowledgement (netlink.h).
mod acknowledgement {
    pub const MSG: u16 = 1;
    pub const OFFS: u16 = 2;
    pub const MISS_TYPE: u16 = 5;
}

/// Bytes that do not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An attribute has a length that its type does not allow.
    #[error("while reading {message}: attribute {attribute} has {length} bytes")]
    Length {
        /// The message being read.
        message: &'static str,
        /// The attribute, by its name in the kernel's headers.
        attribute: &'static str,
        /// Length of its value in bytes.
        length: usize,
    },
    /// A required attribute is missing.
    #[error("while reading {message}: attribute {attribute} is missing")]
    Missing {
        /// The message being read.
        message: &'static str,
        /// The attribute, by its name in the kernel's headers.
        attribute: &'static str,
    },
    /// Headers or attributes do not fit into the bytes received.
    #[error("while reading {message} of {length} bytes: {cause}")]
    Frame {
        /// The message being read.
        message: &'static str,
        /// Bytes received.
        length: usize,
        /// The inconsistency.
        cause: String,
    },
}

/// An error returned by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// The error number.
    pub errno: Errno,
    /// Its text (extended acknowledgement), if the kernel gave one.
    pub text: Option<String>,
    /// Offset of the attribute that the kernel rejected, from the request's beginning in bytes.
    pub offset: Option<u32>,
    /// Number of the attribute that the kernel misses.
    pub missing: Option<u32>,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{text} ({})", self.errno)?,
            None => write!(f, "{}", self.errno)?,
        }
        self.missing.map_or(Ok(()), |missing| write!(f, "; attribute {missing} is missing"))
    }
}

impl std::error::Error for KernelError {}

/// A request in bytes.
pub(super) fn request_bytes(payload: impl NetlinkSerializable, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// One message of a datagram, with its length checked.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Header and payload.
    pub bytes: &'a [u8],
    pub kind: u16,
    /// Sequence number of the request it answers.
    pub sequence: u32,
    flags: u16,
}

impl<'a> Message<'a> {
    /// The message that `bytes` begin with.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let buffer = NetlinkBuffer::new_checked(bytes).map_err(|cause| frame("a message", bytes, cause))?;
        Ok(Message {
            bytes: &bytes[..buffer.length() as usize],
            kind: buffer.message_type(),
            sequence: buffer.sequence_number(),
            flags: buffer.flags(),
        })
    }

    /// The bytes after the netlink header.
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The result in an acknowledgement (`NLMSG_ERROR`) or at the end of a
    /// dump (`NLMSG_DONE`); `None` is success.
    pub fn verdict(self) -> Result<Option<KernelError>, DecodeError> {
        let payload = self.payload();
        let Some((code, rest)) = payload.split_first_chunk::<4>() else {
            return Err(frame("an acknowledgement", payload, "no error number"));
        };
        let code = i32::from_ne_bytes(*code);
        if code >= 0 {
            return Ok(None);
        }
        let errno = Errno::from_raw(code.saturating_neg());
        let mut error = KernelError { errno, text: None, offset: None, missing: None };
        if self.flags & NLM_F_ACK_TLVS != 0 {
            self.explain(rest, &mut error);
        }
        Ok(Some(error))
    }

    /// Reads the attributes of an acknowledgement; those that do not decode are skipped. Those of
    /// `NLMSG_ERROR` follow the header of the request, whose payload is omitted
    /// because all our sockets set `NETLINK_CAP_ACK`.
    fn explain(self, rest: &[u8], error: &mut KernelError) {
        let behind = if self.kind == netlink_packet_core::NLMSG_ERROR { HEADER_LEN } else { 0 };
        let read = attributes("an acknowledgement", rest.get(behind..).unwrap_or_default());
        for attribute in read.filter_map(Result::ok) {
            match attribute.kind {
                acknowledgement::MSG => {
                    let text = String::from_utf8_lossy(attribute.value);
                    error.text = Some(text.trim_end_matches('\0').to_owned());
                }
                acknowledgement::OFFS => error.offset = attribute.u32("NLMSGERR_ATTR_OFFS").ok(),
                acknowledgement::MISS_TYPE => error.missing = attribute.u32("NLMSGERR_ATTR_MISS_TYPE").ok(),
                _ => {}
            }
        }
    }
}

/// The messages of a datagram; after an error there are no more.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, DecodeError>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = Message::parse(rest);
        let taken = message.as_ref().map_or(rest.len(), |found| found.bytes.len().next_multiple_of(4));
        rest = rest.get(taken..).unwrap_or_default();
        Some(message)
    })
}

/// One attribute, flags of its type removed.
#[derive(Clone, Copy)]
pub(super) struct Attribute<'a> {
    message: &'static str,
    pub kind: u16,
    pub value: &'a [u8],
}

/// The attributes in `bytes`; after an error there are no more.
pub(super) fn attributes<'a>(
    message: &'static str,
    bytes: &'a [u8],
) -> impl Iterator<Item = Result<Attribute<'a>, DecodeError>> {
    NlasIterator::new(bytes).map(move |found| {
        let found = found.map_err(|cause| frame(message, bytes, cause))?;
        let (kind, length) = (found.kind(), usize::from(found.length()));
        Ok(Attribute { message, kind, value: &found.into_inner()[4..length] })
    })
}

impl Attribute<'_> {
    pub fn u8(self, name: &'static str) -> Result<u8, DecodeError> {
        self.array(name).map(u8::from_ne_bytes)
    }

    /// The value as a 16-bit number in host order.
    pub fn u16(self, name: &'static str) -> Result<u16, DecodeError> {
        self.array(name).map(u16::from_ne_bytes)
    }

    /// The value as a 16-bit number in network order.
    pub fn be16(self, name: &'static str) -> Result<u16, DecodeError> {
        self.array(name).map(u16::from_be_bytes)
    }

    /// The value as a 32-bit number in host order.
    pub fn u32(self, name: &'static str) -> Result<u32, DecodeError> {
        self.array(name).map(u32::from_ne_bytes)
    }

    /// The value as a 64-bit number in host order.
    pub fn u64(self, name: &'static str) -> Result<u64, DecodeError> {
        self.array(name).map(u64::from_ne_bytes)
    }

    /// The value as an IPv4 address.
    pub fn ipv4(self, name: &'static str) -> Result<IpAddr, DecodeError> {
        self.array::<4>(name).map(|octets| Ipv4Addr::from(octets).into())
    }

    /// The value as an IPv6 address, or the IPv4 address that is mapped in it.
    pub fn ipv6(self, name: &'static str) -> Result<IpAddr, DecodeError> {
        self.ipv6_as_sent(name).map(|ip| ip.to_canonical())
    }

    /// The value as an IPv6 address, also if an IPv4 address is mapped in it.
    pub fn ipv6_as_sent(self, name: &'static str) -> Result<IpAddr, DecodeError> {
        self.array::<16>(name).map(|octets| Ipv6Addr::from(octets).into())
    }

    fn array<const N: usize>(self, attribute: &'static str) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| DecodeError::Length {
            message: self.message,
            attribute,
            length: self.value.len(),
        })
    }
}

/// The error for bytes without valid framing.
pub(super) fn frame(message: &'static str, bytes: &[u8], cause: impl fmt::Display) -> DecodeError {
    DecodeError::Frame { message, length: bytes.len(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error_message(code: i32, behind: &[u8]) -> Vec<u8> {
        let mut raw = ((36 + behind.len()) as u32).to_ne_bytes().to_vec();
        raw.extend([2, 0, 0, 3]); // NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS
        raw.extend([0; 8]);
        raw.extend(code.to_ne_bytes());
        raw.extend([0; HEADER_LEN]);
        raw.extend(behind);
        raw
    }

    #[test]
    fn the_kernels_error_text_is_read() {
        let raw = error_message(-libc::EINVAL, &[8, 0, 1, 0, b'n', b'o', b'!', 0]);
        let error = Message::parse(&raw).unwrap().verdict().unwrap().unwrap();
        assert_eq!(error.to_string(), "no! (EINVAL: Invalid argument)");
        let raw = error_message(-libc::EINVAL, &[8, 0, 2, 0, 20, 0, 0, 0, 8, 0, 5, 0, 6, 0, 0, 0]);
        let error = Message::parse(&raw).unwrap().verdict().unwrap().unwrap();
        assert_eq!((error.offset, error.missing), (Some(20), Some(6)));
        assert_eq!(error.to_string(), "EINVAL: Invalid argument; attribute 6 is missing");
        let raw = error_message(-libc::ESRCH, &[]);
        let error = Message::parse(&raw).unwrap().verdict().unwrap().unwrap();
        assert_eq!((error.errno, error.text), (Errno::ESRCH, None));
    }

    #[test]
    fn an_acknowledgement_is_no_error() {
        assert_eq!(Message::parse(&error_message(0, &[])).unwrap().verdict(), Ok(None));
    }

    #[test]
    fn a_datagram_is_split_into_messages_up_to_the_first_error() {
        let one = error_message(0, &[]);
        assert_eq!(messages(&[one.clone(), one.clone()].concat()).filter(Result::is_ok).count(), 2);
        let cut = [one.clone(), one[..20].to_vec(), one].concat();
        assert_eq!(messages(&cut[..56]).map(|found| found.is_ok()).collect::<Vec<_>>(), [true, false]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..128)) {
            for message in messages(&raw).flatten() {
                let _ = message.verdict();
            }
        }

        #[test]
        fn any_error_message_is_read_without_panic(code: i32, behind in prop::collection::vec(any::<u8>(), 0..64)) {
            let raw = error_message(code, &behind);
            prop_assert_eq!(Message::parse(&raw).unwrap().verdict().unwrap().is_some(), code < 0);
        }
    }
}
