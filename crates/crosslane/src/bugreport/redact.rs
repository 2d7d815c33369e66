//! Replaces what must not leave the machine: keys always, addresses and host names by names that are the same in all files.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::tunnel::config::has_port;

/// A key of 32 bytes in Base64: this many characters and a `=`.
const KEY_CHARACTERS: usize = 43;
const KEY: &str = "key-removed";
/// Longest text of an IPv6 address (RFC 4291, section 2.2, form 3).
const MAX_ADDRESS: usize = 45;
/// Length of an address of Ethernet, as `02:00:00:00:00:01`.
const MAC_LENGTH: usize = 17;

/// Replaces; equal addresses become equal names.
pub struct Redactor {
    hosts: Vec<String>,
    keeps_addresses: bool,
    names: BTreeMap<String, String>,
}

impl Redactor {
    /// With the host names that are to be replaced.
    pub fn new(mut hosts: Vec<String>, keeps_addresses: bool) -> Redactor {
        // A name may contain another one.
        hosts.sort_by_key(|host| std::cmp::Reverse(host.len()));
        hosts.dedup();
        Redactor { hosts, keeps_addresses, names: BTreeMap::new() }
    }

    /// The text without them.
    pub fn redact(&mut self, text: &str) -> String {
        let mut text = without_keys(text);
        if self.keeps_addresses {
            return text;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            text = text.replace(host, &format!("host-{}", place + 1));
        }
        self.without_addresses(&text)
    }

    fn without_addresses(&mut self, text: &str) -> String {
        let (mut redacted, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(first) = rest.chars().next() {
            let length = match address(rest) {
                Some((length, true)) => {
                    let found = rest[..length].to_ascii_lowercase();
                    let next = self.names.len() + 1;
                    redacted += self.names.entry(found).or_insert_with(|| format!("address-{next}"));
                    length
                }
                Some((length, false)) => {
                    redacted += &rest[..length];
                    length
                }
                None => {
                    redacted.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        redacted
    }
}

/// Host names in a configuration: of each value that is a name with a port.
pub fn hosts(configuration: &toml::Table) -> Vec<String> {
    configuration.values().flat_map(hosts_of).collect()
}

fn hosts_of(value: &toml::Value) -> Vec<String> {
    match value {
        toml::Value::String(text) if has_port(text) => {
            let host = text.rsplit_once(':').map_or("", |(host, _)| host);
            let is_name = host != "localhost" && host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
            is_name.then(|| host.to_owned()).into_iter().collect()
        }
        toml::Value::Array(values) => values.iter().flat_map(hosts_of).collect(),
        toml::Value::Table(table) => hosts(table),
        _ => Vec::new(),
    }
}

/// Replaces every word of Base64 that ends with a key.
fn without_keys(text: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    let mut redacted = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_base64(c)) {
        match part.strip_suffix('=') {
            Some(word) if word.len() >= KEY_CHARACTERS => redacted += KEY,
            _ => redacted += part,
        }
    }
    redacted
}

/// Length of the address with which the text begins, if it does, and whether it is to be replaced: those of this machine
/// alone (loopback) and of none remain.
fn address(text: &str) -> Option<(usize, bool)> {
    let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'.' || *byte == b':';
    let longest = text.bytes().take(MAX_ADDRESS).take_while(|byte| is_part(byte)).count();
    let candidate = &text[..longest];
    if candidate.matches(':').count() < 2 && candidate.matches('.').count() < 3 {
        return None;
    }
    let is_foreign = |one: IpAddr| !one.is_loopback() && !one.is_unspecified();
    // A longer one first, since 10.0.0.1 is the beginning of 10.0.0.12.
    let parsed = (2..=longest).rev().find_map(|length| Some((length, candidate[..length].parse::<IpAddr>().ok()?)));
    match parsed {
        Some((length, one)) => Some((length, is_foreign(one))),
        None => candidate.get(..MAC_LENGTH).filter(|mac| is_mac(mac)).map(|mac| (mac.len(), true)),
    }
}

fn is_mac(text: &str) -> bool {
    text.split(':').count() == 6 && text.split(':').all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(text: &str) -> String {
        Redactor::new(Vec::new(), false).redact(text)
    }

    #[test]
    fn equal_addresses_get_equal_names_and_ports_remain() {
        let text = r#"{"a":"192.0.2.7:4760","b":"[2001:DB8::1]:443","c":"192.0.2.71/24","d":"2001:db8::1"}"#;
        let expected = r#"{"a":"address-1:4760","b":"[address-2]:443","c":"address-3/24","d":"address-2"}"#;
        assert_eq!(redact(text), expected);
        assert_eq!(
            redact("lte10.1.2.3, ::ffff:10.1.2.3 and 02:00:5e:10:00:01é"),
            "lteaddress-1, address-2 and address-3é"
        );
    }

    #[test]
    fn what_is_no_address_of_another_machine_remains() {
        let text = "0.1.0 at 12:34:56, 127.0.0.1:9470, [::1]:1, 0.0.0.0:4760, -61.5 dBm, 5b3a0c11, 802.11p";
        assert_eq!(redact(text), text);
    }

    #[test]
    fn keys_are_removed_even_if_addresses_are_kept() {
        let key = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=";
        let text = format!("key = \"{key}\", x{key} 10.0.0.1");
        let expected = format!("key = \"{KEY}\", {KEY} 10.0.0.1");
        assert_eq!(Redactor::new(Vec::new(), true).redact(&text), expected);
    }

    #[test]
    fn host_names_of_the_configuration_are_replaced_everywhere() {
        let text = "[tunnel]\ngateway = \"gw.example.org:4760\"\n[cam]\nbroker = \"127.0.0.1:1883\"\n\
                    [[roadside.unit]]\nname = \"a\"\n[roadside]\ncontroller = \"example.org:1\"";
        assert_eq!(
            hosts(&text.replace("[[roadside.unit]]\nname = \"a\"\n", "").parse().unwrap()),
            ["example.org", "gw.example.org"]
        );
        let mut redactor = Redactor::new(vec!["example.org".into(), "gw.example.org".into()], false);
        assert_eq!(redactor.redact("looking up gw.example.org:4760, example.org"), "looking up host-1:4760, host-2");
    }
}
