//! The rules of source routing, in the order in which they must apply.
//!
//! All have one priority, and of those the kernel applies the one first that was set first. The rules for packets
//! without an address of a path follow the others: they are set again after a new one of these.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Protocol number of the rules and routes, which no other program registers (rtnetlink.h).
pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(69);
/// Every rule of the administrator that precedes the main table's (32766) precedes ours.
const PRIORITY: u32 = 32765;
/// The interface from which the packets of this machine's programs come, for a rule.
const LOOPBACK: &str = "lo";

/// A message that changes the rules, what it attempts, and its flags.
pub(super) type RuleChange = (&'static str, RouteNetlinkMessage, u16);

/// A rule of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) family: AddressFamily,
    /// Packets from this address; `None`: packets of this machine's programs from any other address, or none yet.
    pub(super) source: Option<IpAddr>,
    pub(super) table: u32,
}

impl Rule {
    pub(super) fn from_source(source: IpAddr, table: u32) -> Rule {
        let family = if source.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
        Rule { family, source: Some(source), table }
    }

    /// What the main table has a closer route for than its default routes takes it; all else takes this table.
    pub(super) fn in_place_of_default(family: AddressFamily, table: u32) -> [Rule; 2] {
        [RouteHeader::RT_TABLE_MAIN.into(), table].map(|table| Rule { family, source: None, table })
    }

    /// Reads a rule; `None`: it is not ours.
    pub(super) fn read(message: &RuleMessage) -> Option<Rule> {
        let (mut source, mut table, mut is_ours) = (None, None, false);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Source(address) => source = Some(*address),
                RuleAttribute::Table(number) => table = Some(*number),
                RuleAttribute::Protocol(protocol) => is_ours = *protocol == PROTOCOL,
                _ => {}
            }
        }
        let table = table.filter(|_| is_ours)?;
        Some(Rule { family: message.header.family, source, table })
    }

    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        let src_len = self.source.map_or(0, |source| if source.is_ipv6() { 128 } else { 32 });
        let action = RuleAction::ToTable;
        message.header = RuleHeader { family: self.family, src_len, action, ..RuleHeader::default() };
        message.attributes = vec![
            RuleAttribute::Priority(PRIORITY),
            RuleAttribute::Table(self.table),
            RuleAttribute::Protocol(PROTOCOL),
        ];
        message.attributes.push(match self.source {
            Some(source) => RuleAttribute::Source(source),
            None => RuleAttribute::Iifname(LOOPBACK.into()),
        });
        if self.table == u32::from(RouteHeader::RT_TABLE_MAIN) {
            message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        }
        message
    }
}

/// What makes the wanted rules of the present ones, both in the order in which they apply. What is added precedes
/// what is removed, so that there is no time without a rule.
pub(super) fn changes(present: &[Rule], wanted: &[Rule]) -> Vec<RuleChange> {
    [AddressFamily::Inet, AddressFamily::Inet6]
        .into_iter()
        .flat_map(|family| of_family(family, present, wanted))
        .collect()
}

fn of_family(family: AddressFamily, present: &[Rule], wanted: &[Rule]) -> Vec<RuleChange> {
    let of = |rules: &[Rule]| -> (Vec<Rule>, Vec<Rule>) {
        rules.iter().filter(|rule| rule.family == family).partition(|rule| rule.source.is_some())
    };
    let ((present, present_last), (wanted, wanted_last)) = (of(present), of(wanted));
    let new: Vec<Rule> = wanted.iter().filter(|rule| !present.contains(rule)).copied().collect();
    let old: Vec<Rule> = present.into_iter().filter(|rule| !wanted.contains(rule)).collect();
    let renews = present_last != wanted_last || !new.is_empty();
    let [new_last, old_last] = [wanted_last, present_last].map(|last| if renews { last } else { Vec::new() });
    let set = |rule: &Rule, flags| ("setting a rule", RouteNetlinkMessage::NewRule(rule.message()), flags);
    // Of equal rules the kernel removes the first one.
    let remove = |rule: &Rule| ("removing a rule", RouteNetlinkMessage::DelRule(rule.message()), 0);
    let added = new.iter().map(|rule| set(rule, NLM_F_CREATE | NLM_F_EXCL));
    let added = added.chain(new_last.iter().map(|rule| set(rule, NLM_F_CREATE)));
    added.chain(old.iter().chain(&old_last).map(remove)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

    fn of_path(last: u8, table: u32) -> Rule {
        Rule::from_source([10, 0, 0, last].into(), table)
    }

    /// The tables of the rules in the order in which the kernel applies them, after these changes.
    fn apply(present: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
        let mut rules = present.to_vec();
        for (_, message, _) in changes(present, wanted) {
            match message {
                RouteNetlinkMessage::NewRule(message) => rules.extend(Rule::read(&message)),
                RouteNetlinkMessage::DelRule(message) => {
                    let place = rules.iter().position(|rule| Some(*rule) == Rule::read(&message));
                    rules.remove(place.unwrap());
                }
                other => panic!("{other:?}"),
            }
            let is_led = |rules: &[Rule]| rules.iter().any(|rule| rule.source.is_none() && rule.table != MAIN);
            assert!(!(is_led(present) && is_led(wanted)) || is_led(&rules), "there is a time without a rule");
        }
        rules
    }

    #[test]
    fn rules_for_other_packets_stay_behind_those_of_addresses() {
        let [main, chosen] = Rule::in_place_of_default(AddressFamily::Inet, 7);
        let present = [of_path(1, 7), main, chosen];
        let wanted = [of_path(1, 7), of_path(2, 8), main, chosen];
        assert_eq!(apply(&present, &wanted), wanted);
        assert!(changes(&wanted, &wanted).is_empty());
        assert_eq!(apply(&wanted, &present), present);
        assert_eq!(changes(&wanted, &present).len(), 1, "a removed address leaves the others");
    }

    #[test]
    fn another_path_is_chosen_and_none() {
        let [[main, first], [_, second]] = [7, 8].map(|table| Rule::in_place_of_default(AddressFamily::Inet, table));
        let v6 = Rule::in_place_of_default(AddressFamily::Inet6, 7);
        let address = of_path(1, 7);
        let present = [address, main, first, v6[0], v6[1]];
        assert_eq!(apply(&present, &[address, main, second]), [address, main, second]);
        assert_eq!(apply(&present, &[address]), [address]);
        assert_eq!(apply(&[], &present), present);
    }

    #[test]
    fn a_rule_of_another_program_is_not_ours() {
        let mut message = of_path(1, 7).message();
        assert_eq!(Rule::read(&message), Some(of_path(1, 7)));
        message.attributes.retain(|attribute| !matches!(attribute, RuleAttribute::Protocol(_)));
        assert_eq!(Rule::read(&message), None);
    }
}
