use super::*;
use crate::netlink::nftables::{Element, Table};

const GATEWAY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)), 4760);

fn table() -> Table {
    Table { family: 1, name: "filter".into() }
}

fn chain(name: &str, hook: Option<u32>, drops: bool, rules: &[&[Expression]]) -> Chain {
    let rule = |(place, expressions): (usize, &&[Expression])| Rule {
        handle: place as u64 + 1,
        expressions: expressions.to_vec(),
    };
    let rules = rules.iter().enumerate().map(rule).collect();
    Chain { table: table(), name: name.into(), hook: hook.map(|hook| (hook, 0)), drops, rules }
}

fn datagrams() -> [Packet; 2] {
    Packet::datagrams([10, 1, 0, 2].into(), GATEWAY, Some(("wwan0".into(), 7)))
}

fn fates(chains: &[Chain], sets: &[Set]) -> [Option<(Fate, Option<u64>)>; 2] {
    let rules = Ruleset { chains: chains.to_vec(), sets: sets.to_vec() };
    datagrams().map(|packet| fate(&rules, &packet).map(|(fate, place)| (fate, place.rule)))
}

fn load_port() -> Expression {
    Expression::Payload { to: 1, base: 2, offset: 2, length: 2 }
}

fn is(value: &[u8]) -> Expression {
    Expression::Compare { register: 1, how: Compare::Equal, value: value.to_vec() }
}

const DROP: Expression = Expression::Verdict(Verdict::Drop);
const ACCEPT: Expression = Expression::Verdict(Verdict::Accept);

#[test]
fn a_rule_that_drops_the_port_is_found_and_one_for_another_port_is_not() {
    let udp = [Expression::Meta { to: 1, key: 16 }, is(&[17])];
    let [first, second] = [4760_u16, 53].map(|port| [&udp[..], &[load_port(), is(&port.to_be_bytes()), DROP]].concat());
    let both = chain("out", Some(3), false, &[&second, &first]);
    assert_eq!(fates(&[both], &[]), [Some((Fate::Dropped, Some(2))), None]);
    let other = chain("out", Some(3), false, &[&second]);
    assert_eq!(fates(&[other], &[]), [None, None]);
}

#[test]
fn answers_pass_a_chain_that_drops_what_is_new() {
    let established = [
        Expression::Tracking { to: 1, key: 0 },
        Expression::Bitwise { from: 1, to: 1, mask: 6_u32.to_ne_bytes().to_vec(), xor: vec![0; 4] },
        Expression::Compare { register: 1, how: Compare::NotEqual, value: vec![0; 4] },
        ACCEPT,
    ];
    assert_eq!(fates(&[chain("in", Some(1), true, &[&established])], &[]), [None, None]);
    let [nothing, all] = [&[][..], &[&[Expression::Neutral, ACCEPT][..]][..]];
    assert_eq!(fates(&[chain("in", Some(1), true, nothing)], &[])[1], Some((Fate::Dropped, None)), "by its policy");
    assert_eq!(fates(&[chain("in", Some(1), true, all)], &[])[1], None);
}

#[test]
fn what_may_or_may_not_match_is_no_finding() {
    let perhaps = |end: Expression| vec![Expression::Unknown, end];
    let drops = chain("out", Some(3), false, &[&perhaps(DROP)]);
    assert_eq!(fates(&[drops], &[])[0], None);
    let accepts = chain("out", Some(3), true, &[&perhaps(ACCEPT)]);
    assert_eq!(fates(&[accepts], &[])[0], None);
    // The source port is not known.
    let source = [Expression::Payload { to: 1, base: 2, offset: 0, length: 2 }, is(&[0, 53]), DROP];
    assert_eq!(fates(&[chain("out", Some(3), false, &[&source])], &[])[0], None);
    // A register that held a known value does not keep it.
    let stale = [load_port(), Expression::Unknown, is(&4760_u16.to_be_bytes()), DROP];
    assert_eq!(fates(&[chain("out", Some(3), false, &[&stale])], &[])[0], None);
}

#[test]
fn chains_that_are_jumped_to_sets_and_maps_are_followed() {
    let element = |port: u16, is_end, verdict| Element { key: port.to_be_bytes().to_vec(), is_end, verdict };
    let set = |name: &str, has_intervals, elements| Set { table: table(), name: name.into(), has_intervals, elements };
    let ports = set("ports", true, vec![element(4000, false, None), element(5000, true, None)]);
    let map = set("map", false, vec![element(4760, false, Some(Verdict::Jump("more".into())))]);
    let lookup = |name: &str, is_map, inverted| Expression::Lookup { register: 1, set: name.into(), is_map, inverted };
    let more = chain("more", None, false, &[&[load_port(), lookup("ports", false, false), DROP]]);
    let out = |inverted| chain("out", Some(3), false, &[&[load_port(), lookup("map", true, inverted)]]);
    let sets = [ports, map];
    assert_eq!(fates(&[out(false), more.clone()], &sets)[0], Some((Fate::Dropped, Some(1))));
    let inverted = chain("more", None, false, &[&[load_port(), lookup("ports", false, true), DROP]]);
    assert_eq!(fates(&[out(false), inverted], &sets)[0], None);
    let circle = chain("more", None, false, &[&[Expression::Verdict(Verdict::Jump("more".into()))]]);
    assert_eq!(fates(&[out(false), circle], &sets)[0], None, "a circle of jumps ends");
}

#[test]
fn mptcp_is_dropped_or_stripped() {
    let syn = Packet::syn([10, 1, 0, 2].into(), ("wwan0".into(), 7));
    let of = |rules: &[&[Expression]], packet: &Packet| {
        let rules = Ruleset { chains: vec![chain("out", Some(4), false, rules)], sets: vec![] };
        fate(&rules, packet).map(|(fate, _)| fate)
    };
    let option = Expression::TcpOption { to: 1, option: 30, presence: true };
    assert_eq!(of(&[&[option.clone(), is(&[1]), DROP]], &syn), Some(Fate::Dropped));
    assert_eq!(of(&[&[option, is(&[1]), DROP]], &datagrams()[0]), None, "a datagram has no such option");
    assert_eq!(of(&[&[Expression::StripOption(30)]], &syn), Some(Fate::Stripped));
    assert_eq!(of(&[&[Expression::StripOption(3)]], &syn), None);
    let mut name = b"wwan0".to_vec();
    name.resize(16, 0);
    let interface = |name: &[u8]| [Expression::Meta { to: 1, key: 7 }, is(name), DROP];
    assert_eq!(of(&[&interface(&name)], &syn), Some(Fate::Dropped));
    assert_eq!(of(&[&interface(b"wwan")], &syn), Some(Fate::Dropped), "wwan*");
    assert_eq!(of(&[&interface(b"wlan")], &syn), None);
}

#[test]
fn a_translation_to_the_same_address_is_none() {
    let nat = |address: [u8; 4]| {
        let rule = [
            Expression::Constant { to: 1, value: address.to_vec() },
            Expression::Nat { source: true, address: Some(1) },
        ];
        fates(&[chain("post", Some(4), false, &[&rule])], &[])[0]
    };
    assert_eq!(nat([10, 9, 9, 9]), Some((Fate::Translated, Some(1))));
    assert_eq!(nat([10, 1, 0, 2]), None);
}

#[test]
fn rules_of_iptables_are_read_by_their_ports() {
    let udp = |to: u16, rest: u8| {
        let ports = [0, u16::MAX, to, to].map(u16::to_ne_bytes).concat();
        [Expression::Match("udp".into(), [ports, vec![rest, 0]].concat()), DROP]
    };
    let of = |rule: [Expression; 2]| fates(&[chain("OUTPUT", Some(3), false, &[&rule])], &[])[0];
    assert_eq!(of(udp(4760, 0)), Some((Fate::Dropped, Some(1))));
    assert_eq!(of(udp(53, 0)), None);
    assert_eq!(of(udp(4760, 2)), None, "inverted");
}
