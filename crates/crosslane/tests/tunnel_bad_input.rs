//! Invalid tunnel configurations and commands: one error message with a remedy, exit code 2.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::{assert_none, can_drive, complaint, complaint_with, crosslane};
use crosslane::netlink::Wiring;
use crosslane::testbed::Namespace;
use tempfile::TempDir;

/// Valid configurations of a vehicle and of a gateway.
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
/// Faults: the configuration, text that is replaced, its replacement, and the expected message.
const TUNNELS: &[(&str, &str, &str, &str)] = &[
    (VEHICLE, "gateway =", "listen = \"127.0.0.1:4760\"\ngateway =", "line 6: [tunnel] does not define its role; a"),
    (GATEWAY, "listen = \"127.0.0.1:4760\"\n", "", "line 1: [tunnel] does not define its role; a vehicle has"),
    (VEHICLE, "rat =", "keepalive_s = 0\nrat =", "line 3: keepalive_s is 0; give 0.1 to 3600 seconds, or \"off\" for"),
    (VEHICLE, "rat =", "keepalive_s = 0.05\nrat =", "line 3: keepalive_s is 0.05; give 0.1 to 3600 seconds"),
    (VEHICLE, "rat =", "keepalive_s = nan\nrat =", "line 3: keepalive_s is NaN; give 0.1 to 3600 seconds"),
    (VEHICLE, "rat =", "keepalive_s = \"never\"\nrat =", "line 3: keepalive_s is \"never\"; give 0.1 to 3600"),
    (VEHICLE, "gateway =", "mtu = 500\ngateway =", "line 8: an MTU of 500; give 576 to 9216"),
    (
        GATEWAY,
        "listen",
        "mtu = 1300\nlisten",
        "line 3: an MTU of 1300 leaves 1241 bytes inside; IPv6 needs 1280: raise",
    ),
    (
        VEHICLE,
        "[\"10.77.0.2/24\"]",
        "[\"10.77.0.2/24\", \"10.77.0.2/24\"]",
        "line 7: the tunnel has the address 10.77.0.2 twice; give each address once",
    ),
    (GATEWAY, "10.77.0.3/32", "10.77.0.2/31", "line 12: addresses of vehicles \"van\" and \"car\" overlap; give each"),
    (
        GATEWAY,
        "10.77.0.3/32",
        "10.77.0.3/33",
        "line 12: `address`: \"10.77.0.3/33\" is no address with a prefix; write one as",
    ),
    (GATEWAY, "key = \"OTHER\"\n", "", "line 1: vehicle \"van\" has a key in an unencrypted tunnel, or none in an"),
    (VEHICLE, "key = \"own.key\"\n", "", "line 6: the tunnel has no `key`; give `key`"),
    (VEHICLE, "gateway_key = \"KEY\"\n", "", "line 6: `gateway_key` does not go with `encryption = \"none\"`"),
    (
        VEHICLE,
        "key = \"own.key\"",
        "key = \"own.key\"\nrfc8086_only = true",
        "line 6: `rfc8086_only` is GRE-in-UDP without protection",
    ),
    (VEHICLE, "[tunnel]\n", "[tunnel]\nmode = \"fast\"\n", "line 7: `mode`: unknown word `fast`"),
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
/// Faults that involve a key file; `agent` and `check` report the same.
const KEY_FILE_FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        VEHICLE,
        "own.key",
        "open.key",
        "while reading the private key open.key: group or others have access to it (mode 0644); run `chmod",
    ),
    (
        VEHICLE,
        "own.key",
        "none.key",
        "while reading the private key none.key: there is no such file; `crosslane keygen --out",
    ),
    (VEHICLE, "own.key", "short.key", "while reading the private key short.key: "),
    (VEHICLE, "own.key", ".", "while reading the private key .: it is no regular file; name a file that"),
    (
        VEHICLE,
        "\"KEY\"",
        "\"OWN\"",
        "while comparing the keys of the tunnel with own.key: the peer has the key of this endpoint; give what",
    ),
    (GATEWAY, "\"OTHER\"", "\"OWN\"", "while comparing the keys of the tunnel with own.key: the peer has"),
];
/// Creates the keys in the working directory and inserts the public keys into `text`.
fn keys(workdir: &TempDir, text: &str) -> String {
    let public = |name: &str| {
        let file = workdir.path().join(name);
        if !file.exists() {
            assert_eq!(crosslane(workdir.path(), &["keygen", "--out", name]).code, Some(0));
        }
        let output = crosslane(workdir.path(), &["keygen", "--public", name]);
        output.stdout.trim().to_owned()
    };
    let text = text.replace("\"KEY\"", &format!("\"{}\"", public("peer.key")));
    text.replace("\"OTHER\"", &format!("\"{}\"", public("other.key")))
        .replace("\"OWN\"", &format!("\"{}\"", public("own.key")))
}

#[test]
fn a_fault_in_a_tunnel_configuration_is_reported_with_its_line() {
    let workdir = TempDir::new().unwrap();
    let mut complaints = Vec::new();
    for (good, from, to, expected) in TUNNELS {
        assert!(good.contains(from), "{from}");
        fs::write(workdir.path().join("agent.toml"), keys(&workdir, &good.replacen(from, to, 1))).unwrap();
        let expected = format!("while reading configuration agent.toml {expected}");
        for arguments in [&["agent", "--config", "agent.toml"][..], &["check", "agent.toml"]] {
            complaints.extend(complaint(&crosslane(workdir.path(), arguments), &expected));
        }
    }
    assert_none(complaints);
}

#[test]
fn a_fault_of_a_key_file_is_reported_by_agent_and_check() {
    let workdir = TempDir::new().unwrap();
    keys(&workdir, "");
    fs::copy(workdir.path().join("own.key"), workdir.path().join("open.key")).unwrap();
    fs::set_permissions(workdir.path().join("open.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(workdir.path().join("short.key"), "c2hvcnQ=\n").unwrap();
    fs::set_permissions(workdir.path().join("short.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut complaints = Vec::new();
    for (good, from, to, expected) in KEY_FILE_FAULTS {
        assert!(good.contains(from), "{from}");
        let text = keys(&workdir, &good.replacen(from, to, 1)) + "[log]\nevents = \"events\"\n";
        fs::write(workdir.path().join("agent.toml"), text).unwrap();
        for arguments in [&["agent", "--config", "agent.toml"][..], &["check", "agent.toml"]] {
            complaints.extend(complaint(&crosslane(workdir.path(), arguments), expected));
        }
    }
    assert_none(complaints);
}

#[test]
fn a_tunnel_command_without_an_agent_is_reported() {
    let workdir = TempDir::new().unwrap();
    let long = "x".repeat(200);
    let cases: [(&[&str], &str, i32); 5] = [
        (
            &["status", "--interface", "none-here"],
            "while querying the agent with the tunnel \"none-here\": none runs in this network namespace; start",
            3,
        ),
        (
            &["mode", "standby", "--interface", "none-here"],
            "\"none-here\": none runs in this network namespace; start",
            3,
        ),
        (&["status", "--interface", &long], "none runs in this network namespace; start", 3),
        (
            &["mode", "fast"],
            "invalid value 'fast' for '<MODE>' [possible values: aggregate, redundant, standby, cheapest-first, per-flow, adaptive]",
            2,
        ),
        (&["mode"], "the following required arguments were not provided: <MODE>; add --help", 2),
    ];
    let run = |arguments: &[&str]| crosslane(workdir.path(), &[&["tunnel"], arguments].concat());
    let complaints =
        cases.iter().filter_map(|(arguments, expected, code)| complaint_with(&run(arguments), expected, *code));
    assert_none(complaints.collect());
}

#[test]
fn a_valid_tunnel_configuration_is_accepted() {
    let workdir = TempDir::new().unwrap();
    for (file, text) in [("vehicle.toml", VEHICLE), ("gateway.toml", GATEWAY)] {
        fs::write(workdir.path().join(file), keys(&workdir, text)).unwrap();
        let output = crosslane(workdir.path(), &["check", file]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        let what = if file == "vehicle.toml" {
            "a vehicle with 1 path and a tunnel to 127"
        } else {
            "a gateway for 2 vehicles"
        };
        assert!(output.stdout.contains(what), "{output:?}");
    }
}

/// A host name without a name server, and an address that no interface has.
#[test]
fn the_agent_is_ready_while_it_retries_a_missing_name_or_address() {
    if !can_drive() {
        return;
    }
    let key_dir = TempDir::new().unwrap();
    let own = |text: &str| keys(&key_dir, text).replace("own.key", key_dir.path().join("own.key").to_str().unwrap());
    let namespace = Namespace::new().unwrap();
    let vehicle = own(&VEHICLE.replace("127.0.0.1:4760", "gateway.invalid:4760"));
    let agent = Agent::start(&namespace, &(vehicle + "[log]\nevents = \"EVENTS\"\n"));
    sleep(Duration::from_millis(500));
    // The signal is handled during the lookup and between lookups.
    let (_, stderr) = agent.end();
    assert_eq!(stderr.matches("while looking up the gateway").count(), 1, "{stderr}");
    assert!(stderr.contains("the agent continues without it and retries until it works"), "{stderr}");

    let gateway = own(&GATEWAY.replace("127.0.0.1:4760", "192.0.2.77:4760"));
    // Without any local address the kernel allows a bind to every address.
    namespace.enter(|| Wiring::open().unwrap().set_up("lo", true).unwrap()).unwrap();
    let agent = Agent::start(&namespace, &(gateway + "[log]\nevents = \"EVENTS\"\n"));
    let add = || {
        let mut wiring = Wiring::open().unwrap();
        assert!(wiring.index("crosslane0").is_err(), "the tunnel exists too early");
        let lo = wiring.index("lo").unwrap();
        wiring.add_address(lo, std::net::Ipv4Addr::new(192, 0, 2, 77), 32).unwrap();
    };
    namespace.enter(add).unwrap();
    let has_tunnel = || Wiring::open().unwrap().index("crosslane0").is_ok();
    for _ in 0..100 {
        if namespace.enter(has_tunnel).unwrap() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    assert!(namespace.enter(has_tunnel).unwrap());
    sleep(Duration::from_millis(300));
    let (_, stderr) = agent.end();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.starts_with("crosslane: while binding a UDP socket to 192.0.2.77:4760: Cannot assign"), "{stderr}");
    assert!(stderr.ends_with("crosslane: the tunnel works now\n"), "{stderr}");
}
