//! What `crosslane mptcp` prints: text as the kernel's own test tool prints it, and JSON.

use nix::net::if_::if_indextoname;
use serde_json::{Value, json};

use crate::netlink::requests::{Address, Answer, FLAGS, Limits, Operation};

/// What a request returned: as text, nothing but what was asked for.
pub fn answer(operation: Operation, answer: &Answer) -> (String, Value) {
    let addresses = answer.addresses.iter().map(address).collect();
    match operation {
        Operation::ListAddresses => (addresses, answer.addresses.iter().map(address_json).collect()),
        Operation::GetAddress => (addresses, json!(answer.addresses.first().map(address_json))),
        Operation::GetLimits => (limits(answer.limits), json!(answer.limits)),
        _ => (String::new(), json!({ "ok": true })),
    }
}

/// As `id 3 flags signal,backup dev lo 10.0.1.3 4000`.
fn address(address: &Address) -> String {
    let mut words = Vec::new();
    words.extend(address.id.map(|id| format!("id {id}")));
    words.extend(address.flags.map(|flags| format!("flags {}", flag_names(flags).join(","))));
    words.extend(device(address).map(|name| format!("dev {name}")));
    words.extend(address.ip.map(|ip| ip.to_string()));
    words.extend((address.port != 0).then(|| address.port.to_string()));
    words.join(" ") + "\n"
}

fn address_json(address: &Address) -> Value {
    json!({
        "id": address.id,
        "address": address.ip,
        "port": (address.port != 0).then_some(address.port),
        "flags": flag_names(address.flags.unwrap_or_default()),
        "device": device(address),
    })
}

/// A line each.
fn limits(limits: Limits) -> String {
    let line = |name, limit: Option<u32>| limit.map(|limit| format!("{name} {limit}\n"));
    let lines = [line("accept", limits.add_addr_accepted), line("subflows", limits.subflows)];
    lines.into_iter().flatten().collect()
}

/// Names of the flags; bits without a name are one hexadecimal number.
fn flag_names(flags: u32) -> Vec<String> {
    let known = FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
    let rest = flags & !FLAGS.iter().fold(0, |all, (_, bit)| all | bit);
    known.map(|(name, _)| (*name).to_owned()).chain((rest != 0).then(|| format!("{rest:#x}"))).collect()
}

/// Name of the interface; its index if it is gone.
fn device(address: &Address) -> Option<String> {
    let named = |index| if_indextoname(index).ok()?.into_string().ok();
    (address.if_index != 0).then(|| named(address.if_index).unwrap_or_else(|| address.if_index.to_string()))
}
