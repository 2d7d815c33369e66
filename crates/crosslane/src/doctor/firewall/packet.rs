//! What the rules of nftables make of a packet. Where a rule asks what is not known of the packet, the answer is
//! "perhaps", and nothing is concluded from it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::netlink::nftables::{Chain, Compare, Expression, Rule, Ruleset, Set, Verdict};

/// Depth of jumps that is followed; the kernel's limit is 16.
const MAX_DEPTH: usize = 16;
/// Length of an interface's name in a register.
const NAME_BYTES: usize = 16;
/// The option of MPTCP (RFC 8684 §3).
const MPTCP_OPTION: u8 = 30;

/// Where a packet is looked at (`NF_INET_…`), in the order of its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the network to a program.
    In,
    /// From a program to the network.
    Out,
}

impl Direction {
    fn hooks(self) -> [u32; 2] {
        match self {
            Direction::In => [0, 1],
            Direction::Out => [3, 4],
        }
    }
}

/// A packet, as far as it is known.
#[derive(Clone, Debug)]
pub struct Packet {
    pub direction: Direction,
    /// Name and index of the interface.
    pub interface: Option<(String, u32)>,
    pub is_udp: bool,
    pub is_ipv4: bool,
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    /// Whether it answers another packet.
    pub is_reply: bool,
}

impl Packet {
    /// The first datagram of this host to a peer, and its answer; of `local` only the address is known.
    pub fn datagrams(local: IpAddr, peer: SocketAddr, interface: Option<(String, u32)>) -> [Packet; 2] {
        let there = Packet {
            direction: Direction::Out,
            interface,
            is_udp: true,
            is_ipv4: peer.is_ipv4(),
            source: Some(local),
            destination: Some(peer.ip()),
            source_port: None,
            destination_port: Some(peer.port()),
            is_reply: false,
        };
        let back = Packet {
            direction: Direction::In,
            source: Some(peer.ip()),
            destination: Some(local),
            source_port: Some(peer.port()),
            destination_port: None,
            is_reply: true,
            ..there.clone()
        };
        [there, back]
    }

    /// The first segment with MPTCP's option from a local address to any server.
    pub fn syn(local: IpAddr, interface: (String, u32)) -> Packet {
        Packet {
            direction: Direction::Out,
            interface: Some(interface),
            is_udp: false,
            is_ipv4: local.is_ipv4(),
            source: Some(local),
            destination: None,
            source_port: None,
            destination_port: None,
            is_reply: false,
        }
    }

    fn meta(&self, key: u32) -> Option<Vec<u8>> {
        let [name, index] = match self.direction {
            Direction::In => [6, 4],
            Direction::Out => [7, 5],
        };
        let is_ipv4 = self.is_ipv4;
        match key {
            1 => Some(if is_ipv4 { vec![0x08, 0x00] } else { vec![0x86, 0xdd] }),
            15 => Some(vec![if is_ipv4 { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }]),
            16 => Some(vec![self.protocol()]),
            _ if key == name => self.interface.as_ref().map(|(name, _)| {
                let mut padded = name.clone().into_bytes();
                padded.resize(NAME_BYTES, 0);
                padded
            }),
            _ if key == index => self.interface.as_ref().map(|(_, index)| index.to_ne_bytes().to_vec()),
            _ => None,
        }
    }

    fn protocol(&self) -> u8 {
        if self.is_udp { libc::IPPROTO_UDP as u8 } else { libc::IPPROTO_TCP as u8 }
    }

    /// State of the connection, `NF_CT_STATE_BIT`.
    fn tracking(&self, key: u32) -> Option<Vec<u8>> {
        const ESTABLISHED: u32 = 2;
        const NEW: u32 = 8;
        (key == 0).then(|| if self.is_reply { ESTABLISHED } else { NEW }.to_ne_bytes().to_vec())
    }

    fn payload(&self, base: u32, offset: usize, length: usize) -> Option<Vec<u8>> {
        let header = match base {
            1 => self.network_header(),
            2 => self.transport_header(),
            _ => return None,
        };
        header.get(offset..offset.checked_add(length)?)?.iter().copied().collect()
    }

    fn network_header(&self) -> Vec<Option<u8>> {
        let (length, protocol_at, source_at, destination_at) =
            if self.is_ipv4 { (20, 9, 12, 16) } else { (40, 6, 8, 24) };
        let mut header = vec![None; length];
        header[protocol_at] = Some(self.protocol());
        for (address, at) in [(self.source, source_at), (self.destination, destination_at)] {
            let octets = match address {
                Some(IpAddr::V4(address)) => address.octets().to_vec(),
                Some(IpAddr::V6(address)) => address.octets().to_vec(),
                None => Vec::new(),
            };
            let places = header.iter_mut().skip(at);
            places.zip(octets).for_each(|(place, octet)| *place = Some(octet));
        }
        header
    }

    fn transport_header(&self) -> Vec<Option<u8>> {
        const SYN: u8 = 0x02;
        let mut header = vec![None; if self.is_udp { 8 } else { 20 }];
        for (port, at) in [(self.source_port, 0), (self.destination_port, 2)] {
            let places = header.iter_mut().skip(at);
            places
                .zip(port.map(u16::to_be_bytes).into_iter().flatten())
                .for_each(|(place, octet)| *place = Some(octet));
        }
        if let (false, Some(flags)) = (self.is_udp, header.get_mut(13)) {
            *flags = Some(SYN);
        }
        header
    }
}

/// What becomes of a packet that does not pass as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is dropped.
    Dropped,
    /// MPTCP's option is removed.
    Stripped,
    /// It gets another source or destination.
    Translated,
}

/// Where it is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Table and chain, as `nft` names them.
    pub chain: String,
    /// Handle of the rule; `None`: the policy of the chain.
    pub rule: Option<u64>,
}

/// The fate of a packet, if it is certain and not to pass as it is.
pub fn fate(rules: &Ruleset, packet: &Packet) -> Option<(Fate, Place)> {
    let family = if packet.is_ipv4 { 2 } else { 10 };
    packet.direction.hooks().into_iter().find_map(|hook| {
        let is_here = |chain: &&Chain| {
            chain.hook.is_some_and(|(number, _)| number == hook) && [1, family].contains(&chain.table.family)
        };
        let mut chains: Vec<&Chain> = rules.chains.iter().filter(is_here).collect();
        chains.sort_by_key(|chain| chain.hook.map(|(_, priority)| priority));
        chains.into_iter().find_map(|chain| match walk(rules, packet, chain, MAX_DEPTH) {
            Some(End::Fate(fate, place)) => Some((fate, place)),
            Some(End::Passes) => None,
            None => chain.drops.then(|| (Fate::Dropped, place_in(chain, None))),
        })
    })
}

/// How the way through a base chain ends.
enum End {
    Fate(Fate, Place),
    /// It is accepted, or perhaps so.
    Passes,
}

fn place_in(chain: &Chain, rule: Option<u64>) -> Place {
    Place { chain: format!("{} {}", chain.table.spoken(), chain.name), rule }
}

/// `None`: the end of the chain is reached.
fn walk(rules: &Ruleset, packet: &Packet, chain: &Chain, depth: usize) -> Option<End> {
    let chain_of = |name: &str| rules.chains.iter().find(|one| one.table == chain.table && one.name == name);
    for rule in &chain.rules {
        let ends = |fate| Some(End::Fate(fate, place_in(chain, Some(rule.handle))));
        let (certain, outcome) = apply(rules, packet, chain, rule);
        let next = match outcome {
            Outcome::NextRule => continue,
            Outcome::Stripped => ends(Fate::Stripped),
            Outcome::Translated => ends(Fate::Translated),
            Outcome::Verdict(Verdict::Drop) => ends(Fate::Dropped),
            Outcome::Verdict(Verdict::Accept | Verdict::Other) => Some(End::Passes),
            Outcome::Verdict(Verdict::Continue) => continue,
            Outcome::Verdict(Verdict::Return) if certain => return None,
            Outcome::Verdict(Verdict::Return) => Some(End::Passes),
            Outcome::Verdict(Verdict::Jump(_) | Verdict::Goto(_)) if depth == 0 => Some(End::Passes),
            Outcome::Verdict(Verdict::Jump(name)) => match walk(rules, packet, chain_of(&name)?, depth - 1) {
                None => continue,
                end => end,
            },
            Outcome::Verdict(Verdict::Goto(name)) => {
                let end = walk(rules, packet, chain_of(&name)?, depth - 1);
                if certain || end.is_some() { end } else { continue }
            }
        };
        match next {
            // Perhaps it is dropped here; the next rule decides otherwise.
            Some(End::Fate(..)) if !certain => {}
            end => return end,
        }
    }
    None
}

enum Outcome {
    NextRule,
    Stripped,
    Translated,
    Verdict(Verdict),
}

/// What one rule makes of it, and whether that is certain.
fn apply(rules: &Ruleset, packet: &Packet, chain: &Chain, rule: &Rule) -> (bool, Outcome) {
    let mut registers: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut certain = true;
    for expression in &rule.expressions {
        let holds = match expression {
            Expression::Meta { to, key } => load(&mut registers, *to, packet.meta(*key)),
            Expression::Tracking { to, key } => load(&mut registers, *to, packet.tracking(*key)),
            Expression::Payload { to, base, offset, length } => {
                load(&mut registers, *to, packet.payload(*base, *offset, *length))
            }
            Expression::TcpOption { to, option, presence } => {
                let has = !packet.is_udp && *option == MPTCP_OPTION;
                let known = presence.then(|| vec![u8::from(has)]);
                if *presence || has { load(&mut registers, *to, known) } else { Some(false) }
            }
            Expression::Constant { to, value } => load(&mut registers, *to, Some(value.clone())),
            Expression::Bitwise { from, to, mask, xor } => {
                let masked = registers.get(from).map(|value| {
                    value.iter().zip(mask).zip(xor).map(|((value, mask), xor)| value & mask ^ xor).collect()
                });
                load(&mut registers, *to, masked)
            }
            Expression::Compare { register, how, value } => {
                registers.get(register).map(|found| compare(found, *how, value))
            }
            Expression::Match(name, data) => ported(packet, name, data),
            Expression::StripOption(MPTCP_OPTION) if !packet.is_udp => return (certain, Outcome::Stripped),
            Expression::StripOption(_) | Expression::Neutral => Some(true),
            Expression::Nat { source, address } => return (certain, nat(packet, &registers, *source, *address)),
            Expression::Verdict(verdict) => return (certain, Outcome::Verdict(verdict.clone())),
            Expression::Lookup { register, set, is_map, inverted } => {
                let set = rules.sets.iter().find(|one| one.table == chain.table && one.name == *set);
                match (set, registers.get(register)) {
                    (Some(set), Some(value)) if *is_map => match member(set, value) {
                        Some(Some(verdict)) => return (certain, Outcome::Verdict(verdict)),
                        Some(None) => None,
                        None => Some(false),
                    },
                    (Some(set), Some(value)) => Some(member(set, value).is_some() != *inverted),
                    // A map gives a verdict that is not known.
                    _ if *is_map => return (false, Outcome::Verdict(Verdict::Accept)),
                    _ => None,
                }
            }
            Expression::Unknown => {
                registers.clear();
                None
            }
        };
        match holds {
            Some(true) => {}
            Some(false) => return (true, Outcome::NextRule),
            None => certain = false,
        }
    }
    (certain, Outcome::NextRule)
}

/// An unknown value makes what is read from the register unknown, not the rule.
fn load(registers: &mut BTreeMap<u32, Vec<u8>>, to: u32, value: Option<Vec<u8>>) -> Option<bool> {
    match value {
        Some(value) => drop(registers.insert(to, value)),
        None => drop(registers.remove(&to)),
    }
    Some(true)
}

fn compare(found: &[u8], how: Compare, value: &[u8]) -> bool {
    let found = &found[..value.len().min(found.len())];
    match how {
        Compare::Equal => found == value,
        Compare::NotEqual => found != value,
        Compare::Less => found < value,
        Compare::AtMost => found <= value,
        Compare::Greater => found > value,
        Compare::AtLeast => found >= value,
    }
}

/// Whether the ports of `xt_udp` and `xt_tcp` (xt_tcpudp.h) are those of the packet.
fn ported(packet: &Packet, name: &str, data: &[u8]) -> Option<bool> {
    if name == "comment" {
        return Some(true);
    }
    if name != if packet.is_udp { "udp" } else { "tcp" } {
        return ["udp", "tcp"].contains(&name).then_some(false);
    }
    let number = |at: usize| Some(u16::from_ne_bytes(data.get(at..at + 2)?.try_into().ok()?));
    let ports = [number(0)?..=number(2)?, number(4)?..=number(6)?];
    // More conditions: the option and flags of TCP, and inversions.
    if data.get(8..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        return None;
    }
    let is_any = |range: &std::ops::RangeInclusive<u16>| *range == (0..=u16::MAX);
    let of = [packet.source_port, packet.destination_port];
    let holds =
        ports.iter().zip(of).map(|(range, port)| if is_any(range) { Some(true) } else { Some(range.contains(&port?)) });
    let holds: Vec<Option<bool>> = holds.collect();
    if holds.contains(&Some(false)) {
        return Some(false);
    }
    holds.iter().all(|one| *one == Some(true)).then_some(true)
}

/// An address that stays as it is is no translation.
fn nat(packet: &Packet, registers: &BTreeMap<u32, Vec<u8>>, source: bool, address: Option<u32>) -> Outcome {
    let own = if source { packet.source } else { packet.destination };
    let octets = own.map(|own| match own {
        IpAddr::V4(own) => own.octets().to_vec(),
        IpAddr::V6(own) => own.octets().to_vec(),
    });
    let new = address.and_then(|register| registers.get(&register));
    let stays = octets.is_some() && octets.as_ref() == new;
    // Only the first packet of a connection meets such a rule.
    if stays || packet.is_reply { Outcome::Verdict(Verdict::Accept) } else { Outcome::Translated }
}

/// The element that a value is in, and the verdict of it if the set is a map.
fn member(set: &Set, value: &[u8]) -> Option<Option<Verdict>> {
    if !set.has_intervals {
        return set.elements.iter().find(|element| element.key == value).map(|element| element.verdict.clone());
    }
    let before = set.elements.iter().filter(|element| *element.key <= *value);
    // Where one interval ends and the next begins, the beginning counts.
    let nearest = before.max_by(|a, b| a.key.cmp(&b.key).then(b.is_end.cmp(&a.is_end)))?;
    (!nearest.is_end).then(|| nearest.verdict.clone())
}

#[cfg(test)]
#[path = "packet/tests.rs"]
mod tests;
