//! One expression of a rule.

use super::super::message::{DecodeError, attributes};
use super::{be32, text};

/// An expression, as far as it decides about a packet. Registers are numbers of `enum nft_registers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads a property of the packet (`NFT_META_…`).
    Meta {
        /// Destination register.
        to: u32,
        /// What is loaded.
        key: u32,
    },
    /// Loads a property of the connection (`NFT_CT_…`).
    Tracking {
        /// Destination register.
        to: u32,
        /// What is loaded.
        key: u32,
    },
    /// Loads bytes of a header.
    Payload {
        /// Destination register.
        to: u32,
        /// `NFT_PAYLOAD_…_HEADER`: 1 network, 2 transport.
        base: u32,
        /// First byte.
        offset: usize,
        /// Number of bytes.
        length: usize,
    },
    /// Loads whether the packet has a TCP option, or a part of it.
    TcpOption {
        /// Destination register.
        to: u32,
        /// Kind of the option.
        option: u8,
        /// Whether the packet has it is loaded, not what is in it.
        presence: bool,
    },
    /// Removes a TCP option.
    StripOption(u8),
    /// Loads a constant.
    Constant {
        /// Destination register.
        to: u32,
        /// The value.
        value: Vec<u8>,
    },
    /// Masks a register.
    Bitwise {
        /// Source register.
        from: u32,
        /// Destination register.
        to: u32,
        /// `value & mask ^ xor`.
        mask: Vec<u8>,
        /// As above.
        xor: Vec<u8>,
    },
    /// Goes on only if a register compares so.
    Compare {
        /// The register.
        register: u32,
        /// How.
        how: Compare,
        /// With this value.
        value: Vec<u8>,
    },
    /// Goes on only if a register is in a set; a map gives its verdict.
    Lookup {
        /// The register.
        register: u32,
        /// Name of the set, in the table of the rule.
        set: String,
        /// Whether the verdict of the element applies.
        is_map: bool,
        /// Goes on only if it is not in the set.
        inverted: bool,
    },
    /// Ends the rule.
    Verdict(Verdict),
    /// Translates an address.
    Nat {
        /// The source, or else the destination.
        source: bool,
        /// Register of the new address, if there is one.
        address: Option<u32>,
    },
    /// A match of iptables: `tcp`, `udp` or another one, with its structure.
    Match(String, Vec<u8>),
    /// Decides nothing.
    Neutral,
    /// Something else, which may decide.
    Unknown,
}

/// How values are compared (`NFT_CMP_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
    /// Greater.
    Greater,
    /// Greater or equal.
    AtLeast,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes this base chain.
    Accept,
    /// It is dropped or rejected.
    Drop,
    /// The next rule.
    Continue,
    /// Another chain, then the next rule.
    Jump(String),
    /// Another chain.
    Goto(String),
    /// Back to the calling chain.
    Return,
    /// Something else, as a queue to a program.
    Other,
}

/// The expressions of a rule.
pub(super) fn list(bytes: &[u8]) -> Result<Vec<Expression>, DecodeError> {
    let mut found = Vec::new();
    for element in attributes("the expressions of a rule", bytes) {
        let (mut name, mut data) = (String::new(), &[][..]);
        for attribute in attributes("an expression", element?.value) {
            let attribute = attribute?;
            match attribute.kind {
                1 => name = text(attribute),
                2 => data = attribute.value,
                _ => {}
            }
        }
        found.push(read(&name, &Fields::read(data)?)?);
    }
    Ok(found)
}

/// Attributes of an expression by their number; all are less than this.
const MAX_FIELDS: usize = 16;

/// The values of an expression's attributes.
struct Fields<'a>([Option<&'a [u8]>; MAX_FIELDS]);

impl<'a> Fields<'a> {
    fn read(bytes: &'a [u8]) -> Result<Fields<'a>, DecodeError> {
        let mut fields = Fields([None; MAX_FIELDS]);
        for attribute in attributes("an expression", bytes) {
            let attribute = attribute?;
            if let Some(field) = fields.0.get_mut(usize::from(attribute.kind)) {
                *field = Some(attribute.value);
            }
        }
        Ok(fields)
    }

    fn has(&self, kind: usize) -> bool {
        self.0[kind].is_some()
    }

    /// A number, 0 if it is absent or has another length.
    fn number(&self, kind: usize) -> u32 {
        self.0[kind].and_then(|value| value.try_into().ok()).map_or(0, u32::from_be_bytes)
    }

    fn text(&self, kind: usize) -> String {
        String::from_utf8_lossy(self.0[kind].unwrap_or_default()).trim_end_matches('\0').to_owned()
    }

    fn data(&self, kind: usize) -> Result<(Vec<u8>, Option<Verdict>), DecodeError> {
        data(self.0[kind].unwrap_or_default())
    }
}

/// A value or a verdict (`NFTA_DATA_…`).
pub(super) fn data(bytes: &[u8]) -> Result<(Vec<u8>, Option<Verdict>), DecodeError> {
    let (mut value, mut verdict) = (Vec::new(), None);
    for attribute in attributes("a value of a rule", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => value = attribute.value.to_vec(),
            2 => verdict = Some(read_verdict(attribute.value)?),
            _ => {}
        }
    }
    Ok((value, verdict))
}

fn read_verdict(bytes: &[u8]) -> Result<Verdict, DecodeError> {
    let (mut code, mut chain) = (0, String::new());
    for attribute in attributes("a verdict", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => code = be32(attribute)?.cast_signed(),
            2 => chain = text(attribute),
            _ => {}
        }
    }
    Ok(match code {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -1 | -2 => Verdict::Continue,
        -3 => Verdict::Jump(chain),
        -4 => Verdict::Goto(chain),
        -5 => Verdict::Return,
        _ => Verdict::Other,
    })
}

fn read(name: &str, fields: &Fields) -> Result<Expression, DecodeError> {
    Ok(match name {
        "meta" if fields.has(1) => Expression::Meta { to: fields.number(1), key: fields.number(2) },
        "ct" if fields.has(1) => Expression::Tracking { to: fields.number(1), key: fields.number(2) },
        "payload" if fields.has(1) => Expression::Payload {
            to: fields.number(1),
            base: fields.number(2),
            offset: fields.number(3) as usize,
            length: fields.number(4) as usize,
        },
        "exthdr" => tcp_option(fields),
        "immediate" => match fields.data(2)? {
            (_, Some(verdict)) => Expression::Verdict(verdict),
            (value, None) => Expression::Constant { to: fields.number(1), value },
        },
        "bitwise" if fields.number(6) == 0 => Expression::Bitwise {
            from: fields.number(1),
            to: fields.number(2),
            mask: fields.data(4)?.0,
            xor: fields.data(5)?.0,
        },
        "cmp" => match compare(fields.number(2)) {
            Some(how) => Expression::Compare { register: fields.number(1), how, value: fields.data(3)?.0 },
            None => Expression::Unknown,
        },
        "lookup" => Expression::Lookup {
            register: fields.number(2),
            set: fields.text(1),
            is_map: fields.has(3),
            inverted: fields.number(5) & 1 != 0,
        },
        "nat" => Expression::Nat { source: fields.number(1) == 0, address: fields.has(3).then(|| fields.number(3)) },
        "redir" => Expression::Nat { source: false, address: None },
        "reject" => Expression::Verdict(Verdict::Drop),
        "queue" | "tproxy" | "synproxy" | "fwd" => Expression::Verdict(Verdict::Other),
        "target" => match fields.text(1).as_str() {
            "REJECT" => Expression::Verdict(Verdict::Drop),
            "LOG" | "NFLOG" | "MARK" | "CONNMARK" => Expression::Neutral,
            _ => Expression::Verdict(Verdict::Other),
        },
        "match" => Expression::Match(fields.text(1), fields.0[3].unwrap_or_default().to_vec()),
        // What only sets or counts; the address of `masq` is that of the interface.
        "meta" | "ct" | "payload" | "counter" | "log" | "notrack" | "objref" | "masq" | "dup" => Expression::Neutral,
        _ => Expression::Unknown,
    })
}

fn tcp_option(fields: &Fields) -> Expression {
    /// `NFT_EXTHDR_OP_TCPOPT`.
    const TCP: u32 = 1;
    /// `NFT_EXTHDR_F_PRESENT`.
    const PRESENT: u32 = 1;
    let option = fields.0[2].and_then(|value| value.first()).copied().unwrap_or(0);
    match (fields.number(6), fields.has(1), fields.has(7)) {
        (TCP, true, _) => {
            Expression::TcpOption { to: fields.number(1), option, presence: fields.number(5) & PRESENT != 0 }
        }
        (TCP, false, false) => Expression::StripOption(option),
        (_, true, _) => Expression::Unknown,
        (_, false, _) => Expression::Neutral,
    }
}

fn compare(code: u32) -> Option<Compare> {
    use Compare::{AtLeast, AtMost, Equal, Greater, Less, NotEqual};
    [Equal, NotEqual, Less, AtMost, Greater, AtLeast].get(code as usize).copied()
}
