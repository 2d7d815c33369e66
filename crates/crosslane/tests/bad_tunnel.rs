//! What a user can get wrong about a tunnel: one sentence with remedy, exit code 2.

#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;

use crosslane::netlink::Wiring;
use crosslane::testbed::Namespace;
use program::agent::Agent;
use program::{assert_none, can_drive, complaint, crosslane};
use tempfile::TempDir;

/// A vehicle's tunnel, and a gateway's.
const VEHICLE: &str = r#"[[path]]
name = "lo"
rat = "lte"
[strategy]
name = "threshold"
[tunnel]
address = ["10.77.0.2/24"]
gateway = "127.0.0.1:4760"
key = "own.key"
gateway_key = "KEY"
"#;
const GATEWAY: &str = r#"[tunnel]
address = ["10.77.0.1/24", "fd77::1/64"]
listen = "127.0.0.1:4760"
key = "own.key"
[[tunnel.vehicle]]
name = "car"
key = "KEY"
address = ["10.77.0.2/32", "fd77::2/128"]
[[tunnel.vehicle]]
name = "van"
key = "OTHER"
address = ["10.77.0.3/32"]
"#;
/// In either: what is replaced, by what, and what must be said.
const TUNNELS: &[(&str, &str, &str, &str)] = &[
    (VEHICLE, "gateway =", "listen = \"127.0.0.1:4760\"\ngateway =", "line 6: [tunnel] does not define its role; a"),
    (GATEWAY, "listen = \"127.0.0.1:4760\"\n", "", "line 1: [tunnel] does not define its role; a vehicle has"),
    (VEHICLE, "gateway =", "mtu = 500\ngateway =", "line 8: an MTU of 500; give 576 to 9216"),
    (
        GATEWAY,
        "listen",
        "mtu = 1300\nlisten",
        "line 3: an MTU of 1300 leaves 1232 bytes inside; IPv6 needs 1280: raise",
    ),
    (GATEWAY, "10.77.0.3/32", "10.77.0.2/31", "line 12: addresses of vehicles \"van\" and \"car\" overlap; give each"),
    (GATEWAY, "10.77.0.3/32", "10.77.0.3/33", "line 12: \"10.77.0.3/33\" is no address with a prefix; write one as"),
    (GATEWAY, "key = \"OTHER\"\n", "", "line 1: vehicle \"van\" has a key in an unencrypted tunnel, or none in an"),
    (VEHICLE, "key = \"own.key\"\n", "", "line 6: the tunnel has no `key`; give `key`"),
    (VEHICLE, "gateway_key = \"KEY\"\n", "", "line 6: `gateway_key` does not go with `encryption = \"none\"`"),
    (
        VEHICLE,
        "key = \"own.key\"",
        "key = \"own.key\"\nrfc8086_only = true",
        "line 6: `rfc8086_only` is GRE-in-UDP without protection",
    ),
    (VEHICLE, "[tunnel]\n", "[tunnel]\nmode = \"fast\"\n", "line 7: unknown variant `fast`"),
    (VEHICLE, "\"KEY\"", "\"PUBLIC KEY OF THE GATEWAY\"", "line 10: \"PUBLIC KEY OF THE GATEWAY\" is no public key: a"),
    (GATEWAY, "\"OTHER\"", "\"word\"", "line 11: \"word\" is no public key: a key has 32 bytes"),
    (
        VEHICLE,
        "127.0.0.1:4760",
        "127.0.0.1",
        "line 8: the gateway \"127.0.0.1\" has no port; give an address and a port",
    ),
    (VEHICLE, "127.0.0.1:4760", "2001:db8::1:4760", "line 8: the gateway \"2001:db8::1:4760\" has no port; give"),
    (VEHICLE, "127.0.0.1:4760", "gateway.example:0", "line 8: the gateway \"gateway.example:0\" has no port; give"),
    (GATEWAY, "127.0.0.1:4760", "127.0.0.1:0", "line 3: the gateway listens on 127.0.0.1:0, which is no port; give"),
    (GATEWAY, "[\"10.77.0.3/32\"]", "[]", "line 1: vehicle \"van\" has no address, so it could take any; give it"),
    (GATEWAY, "\"OTHER\"", "\"KEY\"", "line 11: vehicles \"van\" and \"car\" have the same key; make a key for each"),
    (
        GATEWAY,
        "10.77.0.3/32",
        "10.77.0.1/32",
        "line 12: vehicle \"van\" is given 10.77.0.1, the gateway's own address; give each",
    ),
    (GATEWAY, "10.77.0.3/32", "0.0.0.0/0", "line 12: vehicle \"van\" is given 10.77.0.1, the gateway's own"),
    (VEHICLE, "[tunnel]", "[tunnel]\ninterface = \"lo\"", "line 6: the tunnel's interface \"lo\" is invalid: an"),
    (
        VEHICLE,
        "[tunnel]",
        "[tunnel]\ninterface = \"sixteen-letters-\"",
        "line 6: the tunnel's interface \"sixteen-letters-\" is invalid: an interface's name has",
    ),
];
/// What shows only beside other files, to `agent` and `check` alike.
const BESIDE_OTHER_FILES: &[(&str, &str, &str, &str)] = &[
    (
        VEHICLE,
        "own.key",
        "open.key",
        "while reading the private key open.key: group or others have access to it (mode 0644); `chmod",
    ),
    (
        VEHICLE,
        "own.key",
        "none.key",
        "while reading the private key none.key: there is no such file; `crosslane keygen --out",
    ),
    (VEHICLE, "own.key", "short.key", "while reading the private key short.key: "),
    (VEHICLE, "own.key", ".", "while reading the private key .: it is no regular file; `crosslane keygen"),
    (
        VEHICLE,
        "\"KEY\"",
        "\"OWN\"",
        "while comparing the keys of the tunnel with own.key: the peer has the key of this endpoint; give what",
    ),
    (GATEWAY, "\"OTHER\"", "\"OWN\"", "while comparing the keys of the tunnel with own.key: the peer has"),
];
/// A folder with keys, and a text with them.
fn keys(desk: &TempDir, text: &str) -> String {
    let public = |name: &str| {
        let file = desk.path().join(name);
        if !file.exists() {
            assert_eq!(crosslane(desk.path(), &["keygen", "--out", name]).code, Some(0));
        }
        let said = crosslane(desk.path(), &["keygen", "--public", name]);
        said.stdout.trim().to_owned()
    };
    let text = text.replace("\"KEY\"", &format!("\"{}\"", public("peer.key")));
    text.replace("\"OTHER\"", &format!("\"{}\"", public("other.key")))
        .replace("\"OWN\"", &format!("\"{}\"", public("own.key")))
}

#[test]
fn a_fault_in_a_tunnel_is_told_with_its_line() {
    let desk = TempDir::new().unwrap();
    let mut complaints = Vec::new();
    for (good, from, to, expected) in TUNNELS {
        assert!(good.contains(from), "{from}");
        fs::write(desk.path().join("agent.toml"), keys(&desk, &good.replacen(from, to, 1))).unwrap();
        let expected = format!("while reading configuration agent.toml {expected}");
        for arguments in [&["agent", "--config", "agent.toml"][..], &["check", "agent.toml"]] {
            complaints.extend(complaint(&crosslane(desk.path(), arguments), &expected));
        }
    }
    assert_none(complaints);
}

#[test]
fn a_tunnel_that_cannot_be_is_told_by_the_agent_and_by_check() {
    let desk = TempDir::new().unwrap();
    keys(&desk, "");
    fs::copy(desk.path().join("own.key"), desk.path().join("open.key")).unwrap();
    fs::set_permissions(desk.path().join("open.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(desk.path().join("short.key"), "c2hvcnQ=\n").unwrap();
    fs::set_permissions(desk.path().join("short.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut complaints = Vec::new();
    for (good, from, to, expected) in BESIDE_OTHER_FILES {
        assert!(good.contains(from), "{from}");
        let text = keys(&desk, &good.replacen(from, to, 1)) + "[log]\nevents = \"events\"\n";
        fs::write(desk.path().join("agent.toml"), text).unwrap();
        for arguments in [&["agent", "--config", "agent.toml"][..], &["check", "agent.toml"]] {
            complaints.extend(complaint(&crosslane(desk.path(), arguments), expected));
        }
    }
    assert_none(complaints);
}

#[test]
fn a_tunnel_that_cannot_be_asked_is_told() {
    let desk = TempDir::new().unwrap();
    let long = "x".repeat(200);
    let cases: [(&[&str], &str); 5] = [
        (
            &["status", "--interface", "none-here"],
            "while querying the agent with the tunnel \"none-here\": none runs in this network namespace; start",
        ),
        (&["mode", "standby", "--interface", "none-here"], "\"none-here\": none runs in this network namespace; start"),
        (&["status", "--interface", &long], "none runs in this network namespace; start"),
        (
            &["mode", "fast"],
            "invalid value 'fast' for '<MODE>' [possible values: aggregate, redundant, standby, cheapest-first, per-flow]",
        ),
        (&["mode"], "the following required arguments were not provided: <MODE>; add --help"),
    ];
    let said = |arguments: &[&str]| crosslane(desk.path(), &[&["tunnel"], arguments].concat());
    assert_none(cases.iter().filter_map(|(arguments, expected)| complaint(&said(arguments), expected)).collect());
}

#[test]
fn a_good_tunnel_is_not_refused() {
    let desk = TempDir::new().unwrap();
    for (file, text) in [("vehicle.toml", VEHICLE), ("gateway.toml", GATEWAY)] {
        fs::write(desk.path().join(file), keys(&desk, text)).unwrap();
        let said = crosslane(desk.path(), &["check", file]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
        let what = if file == "vehicle.toml" {
            "a vehicle with 1 path and a tunnel to 127"
        } else {
            "a gateway for 2 vehicles"
        };
        assert!(said.stdout.contains(what), "{said:?}");
    }
}

/// A name without a name server, and an address that no interface has.
#[test]
fn what_is_not_there_yet_is_waited_for_and_the_agent_is_ready_meanwhile() {
    if !can_drive() {
        return;
    }
    let keep = TempDir::new().unwrap();
    let own = |text: &str| keys(&keep, text).replace("own.key", keep.path().join("own.key").to_str().unwrap());
    let namespace = Namespace::new().unwrap();
    let vehicle = own(&VEHICLE.replace("127.0.0.1:4760", "gateway.invalid:4760"));
    let agent = Agent::start(&namespace, &(vehicle + "[log]\nevents = \"EVENTS\"\n"));
    sleep(Duration::from_millis(500));
    // It is obeyed while the name is looked up and while nothing is.
    let (_, stderr) = agent.end();
    assert_eq!(stderr.matches("while looking up the gateway").count(), 1, "{stderr}");
    assert!(stderr.contains("the agent continues without it and retries until it works"), "{stderr}");

    let gateway = own(&GATEWAY.replace("127.0.0.1:4760", "192.0.2.77:4760"));
    // Without any local address the kernel lets everything be bound.
    namespace.enter(|| Wiring::open().unwrap().set_up("lo", true).unwrap()).unwrap();
    let agent = Agent::start(&namespace, &(gateway + "[log]\nevents = \"EVENTS\"\n"));
    let add = || {
        let mut wiring = Wiring::open().unwrap();
        assert!(wiring.index("crosslane0").is_err(), "there is no tunnel yet");
        let lo = wiring.index("lo").unwrap();
        wiring.add_address(lo, std::net::Ipv4Addr::new(192, 0, 2, 77), 32).unwrap();
    };
    namespace.enter(add).unwrap();
    let is_there = || Wiring::open().unwrap().index("crosslane0").is_ok();
    for _ in 0..100 {
        if namespace.enter(is_there).unwrap() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    assert!(namespace.enter(is_there).unwrap());
    sleep(Duration::from_millis(300));
    let (_, stderr) = agent.end();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.starts_with("crosslane: while binding a UDP socket to 192.0.2.77:4760: Cannot assign"), "{stderr}");
    assert!(stderr.ends_with("crosslane: the tunnel works now\n"), "{stderr}");
}
