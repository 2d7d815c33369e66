//! The rules of nftables in this network namespace, as far as they decide whether a packet passes: netlink
//! `NFNL_SUBSYS_NFTABLES` (Linux `include/uapi/linux/netfilter/nf_tables.h`). Rules of iptables-nft are among them, those
//! of iptables-legacy are not. Reads only.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::message::{Attribute, DecodeError, Message, attributes};
use super::{CallError, Channel};

mod expression;

pub use expression::{Compare, Expression, Verdict};

/// Rules, chains and elements of sets that are read of each kind.
const MAX_ENTRIES: usize = 100_000;
/// Length of `struct nfgenmsg` in bytes.
const HEADER_LEN: usize = 4;

mod get {
    pub const CHAIN: u16 = 4;
    pub const RULE: u16 = 7;
    pub const SET: u16 = 10;
    pub const SET_ELEMENT: u16 = 13;
}

/// `NFT_SET_INTERVAL`, a flag of a set.
const INTERVAL: u32 = 4;
/// `NFT_SET_ELEM_INTERVAL_END`, a flag of an element.
const INTERVAL_END: u32 = 1;

/// A table, by its family and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `NFPROTO_…`.
    pub family: u8,
    /// Its name.
    pub name: String,
}

impl Table {
    /// `inet filter`, as `nft` prints it.
    pub fn spoken(&self) -> String {
        let family = match self.family {
            1 => "inet",
            2 => "ip",
            3 => "arp",
            5 => "netdev",
            7 => "bridge",
            10 => "ip6",
            _ => "unknown",
        };
        format!("{family} {}", self.name)
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its table.
    pub table: Table,
    /// Its name.
    pub name: String,
    /// Hook number and priority of a base chain.
    pub hook: Option<(u32, i32)>,
    /// Whether its policy drops what no rule accepts.
    pub drops: bool,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its handle, as `nft -a` prints it.
    pub handle: u64,
    /// Its expressions, in order.
    pub expressions: Vec<Expression>,
}

/// A set, or a map to verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its table.
    pub table: Table,
    /// Its name.
    pub name: String,
    /// Whether its elements are the ends of intervals.
    pub has_intervals: bool,
    /// Its elements.
    pub elements: Vec<Element>,
}

/// An element of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key.
    pub key: Vec<u8>,
    /// Whether an interval ends before it.
    pub is_end: bool,
    /// The verdict of a map.
    pub verdict: Option<Verdict>,
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// The chains.
    pub chains: Vec<Chain>,
    /// The sets.
    pub sets: Vec<Set>,
}

/// Reads the family and the attributes of a message.
type Read<'a> = dyn FnMut(u8, &[u8]) -> Result<(), DecodeError> + 'a;

/// The rules of this thread's network namespace; none on a kernel without nftables.
///
/// # Errors
/// The kernel refuses, as without CAP_NET_ADMIN, or what it sends cannot be read.
pub fn ruleset() -> Result<Ruleset, CallError> {
    let mut channel = match Channel::open(NETLINK_NETFILTER) {
        Err(cause) if cause.kind() == io::ErrorKind::Unsupported => return Ok(Ruleset::default()),
        opened => opened?,
    };
    let mut ruleset = Ruleset::default();
    let mut dump = |request: Request, read: &mut Read| {
        channel.call(request, NLM_F_DUMP, |message: Message| match message.payload().split_at_checked(HEADER_LEN) {
            Some((header, rest)) => read(header[0], rest),
            None => Ok(()),
        })
    };
    dump(Request::all(get::CHAIN), &mut |family, bytes| chain(&mut ruleset, family, bytes))?;
    if ruleset.chains.is_empty() {
        return Ok(ruleset);
    }
    dump(Request::all(get::RULE), &mut |family, bytes| rule(&mut ruleset, family, bytes))?;
    dump(Request::all(get::SET), &mut |family, bytes| set(&mut ruleset, family, bytes))?;
    for set in &mut ruleset.sets {
        let request = Request::elements(&set.table, &set.name);
        dump(request, &mut |_, bytes| elements(&mut set.elements, bytes))?;
    }
    Ok(ruleset)
}

/// A request for a dump.
struct Request {
    kind: u16,
    family: u8,
    attributes: Vec<u8>,
}

impl Request {
    /// Of all families and tables.
    fn all(kind: u16) -> Request {
        Request { kind, family: 0, attributes: Vec::new() }
    }

    fn elements(table: &Table, set: &str) -> Request {
        let mut attributes = Vec::new();
        for (kind, text) in [(1_u16, &*table.name), (2, set)] {
            attributes.extend(((text.len() + 5) as u16).to_ne_bytes());
            attributes.extend(kind.to_ne_bytes());
            attributes.extend(text.as_bytes());
            attributes.push(0);
            attributes.resize(attributes.len().next_multiple_of(4), 0);
        }
        Request { kind: get::SET_ELEMENT, family: table.family, attributes }
    }
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        const SUBSYSTEM: u16 = 10;
        SUBSYSTEM << 8 | self.kind
    }

    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEADER_LEN].copy_from_slice(&[self.family, 0, 0, 0]);
        buffer[HEADER_LEN..].copy_from_slice(&self.attributes);
    }
}

fn chain(to: &mut Ruleset, family: u8, bytes: &[u8]) -> Result<(), DecodeError> {
    let table = Table { family, name: String::new() };
    let mut chain = Chain { table, name: String::new(), hook: None, drops: false, rules: Vec::new() };
    for attribute in attributes("a chain", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => chain.table.name = text(attribute),
            3 => chain.name = text(attribute),
            4 => chain.hook = hook(attribute.value)?,
            5 => chain.drops = be32(attribute)? == 0,
            _ => {}
        }
    }
    if to.chains.len() < MAX_ENTRIES {
        to.chains.push(chain);
    }
    Ok(())
}

fn hook(bytes: &[u8]) -> Result<Option<(u32, i32)>, DecodeError> {
    let (mut number, mut priority) = (None, 0);
    for attribute in attributes("a hook", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => number = Some(be32(attribute)?),
            2 => priority = be32(attribute)?.cast_signed(),
            _ => {}
        }
    }
    Ok(number.map(|number| (number, priority)))
}

fn rule(to: &mut Ruleset, family: u8, bytes: &[u8]) -> Result<(), DecodeError> {
    let (mut table, mut chain) = (String::new(), String::new());
    let mut rule = Rule { handle: 0, expressions: Vec::new() };
    for attribute in attributes("a rule", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => table = text(attribute),
            2 => chain = text(attribute),
            3 => rule.handle = u64::from_be_bytes(attribute.u64("NFTA_RULE_HANDLE")?.to_ne_bytes()),
            4 => rule.expressions = expression::list(attribute.value)?,
            _ => {}
        }
    }
    let table = Table { family, name: table };
    let of = to.chains.iter_mut().find(|one| one.name == chain && one.table == table);
    of.into_iter().filter(|of| of.rules.len() < MAX_ENTRIES).for_each(|of| of.rules.push(rule.clone()));
    Ok(())
}

fn set(to: &mut Ruleset, family: u8, bytes: &[u8]) -> Result<(), DecodeError> {
    let table = Table { family, name: String::new() };
    let mut set = Set { table, name: String::new(), has_intervals: false, elements: Vec::new() };
    for attribute in attributes("a set", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            1 => set.table.name = text(attribute),
            2 => set.name = text(attribute),
            3 => set.has_intervals = be32(attribute)? & INTERVAL != 0,
            _ => {}
        }
    }
    if to.sets.len() < MAX_ENTRIES {
        to.sets.push(set);
    }
    Ok(())
}

fn elements(to: &mut Vec<Element>, bytes: &[u8]) -> Result<(), DecodeError> {
    for list in attributes("elements of a set", bytes) {
        let list = list?;
        if list.kind != 3 {
            continue;
        }
        for item in attributes("elements of a set", list.value) {
            let mut element = Element { key: Vec::new(), is_end: false, verdict: None };
            for attribute in attributes("an element of a set", item?.value) {
                let attribute = attribute?;
                match attribute.kind {
                    1 => element.key = expression::data(attribute.value)?.0,
                    2 => element.verdict = expression::data(attribute.value)?.1,
                    3 => element.is_end = be32(attribute)? & INTERVAL_END != 0,
                    _ => {}
                }
            }
            if to.len() < MAX_ENTRIES {
                to.push(element);
            }
        }
    }
    Ok(())
}

fn be32(attribute: Attribute) -> Result<u32, DecodeError> {
    attribute.u32("a number of nf_tables").map(|number| u32::from_be_bytes(number.to_ne_bytes()))
}

fn text(attribute: Attribute) -> String {
    String::from_utf8_lossy(attribute.value).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..256)) {
            let mut ruleset = Ruleset::default();
            let _ = chain(&mut ruleset, 1, &raw);
            let _ = rule(&mut ruleset, 1, &raw);
            let _ = set(&mut ruleset, 1, &raw);
            let _ = elements(&mut Vec::new(), &raw);
            let _ = expression::list(&raw);
        }
    }
}
