//! `crosslane doctor`: each of these faults is named, and a machine without one is not blamed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::program::agent::{Agent, take_down};
use crate::program::links::two_wires;
use crate::program::{CROSSLANE, ProgramOutput, can_drive, crosslane};
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, Wiring, select_path_manager};
use crosslane::testbed::{Namespace, SERVER, Testbed, vehicle_address};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

const PATHS: &str = r#"
[[path]]
name = "one"
rat = "lte"
[[path]]
name = "two"
rat = "lte"
[strategy]
name = "threshold"
"#;

/// A vehicle with two paths to a server, on which nothing is wrong, and its configuration.
struct World {
    testbed: Testbed,
    folder: TempDir,
    configuration: String,
}

impl World {
    fn new() -> World {
        let testbed = two_wires(["one", "two"], 20.0);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        World { testbed, folder: TempDir::new().unwrap(), configuration: PATHS.into() }
    }

    /// As a vehicle with a tunnel to a gateway that runs.
    fn with_tunnel(mut self) -> (World, Agent) {
        let (folder, key) = (self.folder.path(), self.folder.path().join("key"));
        let public = ["key", "gateway"].map(|name| crosslane(folder, &["keygen", "--out", name]).stdout);
        let [own, public] = public.each_ref().map(|key| key.trim());
        let gateway = format!(
            "[log]\nevents = \"EVENTS\"\n[tunnel]\naddress = [\"10.77.0.1/24\"]\nlisten = \"{SERVER}:7000\"\nkey = \"{}\"\n\
             [[tunnel.vehicle]]\nname = \"bus\"\nkey = \"{own}\"\naddress = [\"10.77.0.2/32\"]\n",
            folder.join("gateway").display()
        );
        let gateway = Agent::start(&self.testbed.server, &gateway);
        let key = key.display();
        self.configuration += &format!(
            "[tunnel]\naddress = [\"10.77.0.2/24\"]\nkey = \"{key}\"\ngateway = \"{SERVER}:7000\"\ngateway_key = \"{public}\"\n"
        );
        (self, gateway)
    }

    fn set(&self, name: &str, value: &str) {
        self.testbed.vehicle.set_sysctl(name, value).unwrap();
    }

    fn command(&self, options: &[&str]) -> Command {
        let file = self.folder.path().join("agent.toml");
        fs::write(&file, &self.configuration).unwrap();
        let mut command = Command::new(CROSSLANE);
        command.args(["doctor", "--json", "--config"]).arg(file).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Exit code, and the names of the findings.
    fn examine(&self, options: &[&str]) -> (i32, Vec<String>) {
        findings(self.testbed.vehicle.spawn(&mut self.command(options)).unwrap())
    }

    #[track_caller]
    fn expect(&self, code: i32, names: &[&str]) {
        self.expect_with(&[], code, names);
    }

    #[track_caller]
    fn expect_with(&self, options: &[&str], code: i32, names: &[&str]) {
        assert_eq!(self.examine(options), (code, names.iter().map(|name| (*name).to_owned()).collect()));
    }
}

fn findings(child: Child) -> (i32, Vec<String>) {
    let output: ProgramOutput = child.wait_with_output().unwrap().into();
    assert_eq!(output.stderr, "", "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let code = output.code.unwrap();
    assert_eq!(report["verdict"], ["good", "warning", "broken"][code as usize]);
    let findings = report["findings"].as_array().unwrap();
    for finding in findings {
        for key in ["what", "why", "fix"] {
            assert!(finding[key].as_str().unwrap().len() > 10, "{key} of {finding}");
        }
    }
    (code, findings.iter().map(|finding| finding["name"].as_str().unwrap().to_owned()).collect())
}

fn listen(protocol: Protocol) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).unwrap();
    socket.bind(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
    socket.listen(16).unwrap();
    socket
}

#[test]
fn nothing_is_wrong_with_a_machine_that_is_well() {
    if !can_drive() {
        return;
    }
    let (world, _gateway) = World::new().with_tunnel();
    let _server = world.testbed.server.enter(|| listen(Protocol::MPTCP)).unwrap();
    world.expect_with(&["--server", &format!("{SERVER}:5001")], 0, &[]);
}

#[test]
fn faults_of_the_kernel_s_settings_are_named() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.set("net/mptcp/enabled", "0");
    world.expect(2, &["mptcp.disabled"]);
    world.set("net/mptcp/enabled", "1");
    world.testbed.vehicle.enter(|| select_path_manager(PathManager::Kernel).unwrap()).unwrap();
    world.expect(1, &["mptcp.path-manager"]);
    world.testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    world.set("net/ipv4/conf/two/rp_filter", "1");
    world.expect(1, &["rp-filter.strict"]);
    world.set("net/ipv4/conf/two/rp_filter", "2");
    world.expect(0, &[]);
    let limit = || EndpointSocket::open().unwrap().set_limits(Limits { subflows: 0, add_addr_accepted: 0 }).unwrap();
    world.testbed.server.enter(limit).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["doctor", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = world.testbed.server.spawn(&mut command).unwrap();
    assert_eq!(findings(server), (1, vec!["mptcp.limits".into()]));
}

#[test]
fn competitors_are_named() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let add = || EndpointSocket::open().unwrap().add(&Endpoint::subflow(vehicle_address(1).into())).unwrap();
    world.testbed.vehicle.enter(add).unwrap();
    world.expect(1, &["competitor.endpoints"]);
    world.testbed.vehicle.enter(|| EndpointSocket::open().unwrap().flush().unwrap()).unwrap();
    let start = || Agent::start(&world.testbed.vehicle, &format!("{PATHS}[log]\nevents = \"EVENTS\"\n"));
    let first = start();
    world.expect(0, &[]);
    let second = start();
    world.expect(1, &["competitor.agent"]);
    drop((first.end(), second.end()));
    let other = world.folder.path().join("mptcpd");
    symlink(CROSSLANE, &other).unwrap();
    let mut command = Command::new(other);
    command.args(["mptcp", "listen", "127.0.0.1"]).stdout(Stdio::null());
    let mut other = world.testbed.vehicle.spawn(&mut command).unwrap();
    world.expect(1, &["competitor.mptcpd"]);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn faults_of_interfaces_addresses_and_routes_are_named() {
    if !can_drive() {
        return;
    }
    let mut world = World::new();
    let named = |key: &str| PATHS.replacen("name = \"two\"", &format!("name = \"two\"\n{key}"), 1);
    world.configuration = named("interface = \"wwan7\"");
    world.expect(2, &["interface.absent"]);
    world.configuration = named("address = \"10.9.9.9\"");
    world.expect(2, &["address.other"]);
    world.configuration = named("interface = \"bare\"");
    world.testbed.vehicle.enter(|| runtime().block_on(add_bare_interface())).unwrap();
    world.expect(2, &["address.none"]);
    world.configuration = PATHS.into();
    world.testbed.vehicle.enter(|| Wiring::open().unwrap().remove_rules(101..=101).unwrap()).unwrap();
    world.expect(2, &["route.other"]);
    let child = world.testbed.vehicle.spawn(&mut world.command(&[])).unwrap();
    let report = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let fix = "ip route add default via GATEWAY dev two metric 200, if no route leads over it";
    assert!(report.contains(fix), "an agent that runs already does not add it: {report}");
    take_down(&world.testbed.vehicle, "two");
    world.expect(2, &["interface.down"]);
}

#[test]
fn a_path_without_any_route_and_a_small_mtu_are_named() {
    if !can_drive() {
        return;
    }
    let mut world = World::new();
    let shrink = || Wiring::open().unwrap().bring_up("one", 1000, 100).unwrap();
    world.testbed.vehicle.enter(shrink).unwrap();
    world.expect(1, &["mtu.small"]);
    let lonely = Namespace::new().unwrap();
    let add = || {
        runtime().block_on(add_bare_interface());
        let mut wiring = Wiring::open().unwrap();
        let index = wiring.index("bare").unwrap();
        wiring.add_address(index, std::net::Ipv4Addr::new(10, 99, 0, 2), 24).unwrap();
        select_path_manager(PathManager::UserSpace).unwrap();
    };
    lonely.enter(add).unwrap();
    world.configuration = "[[path]]\nname = \"bare\"\nrat = \"lte\"\n[strategy]\nname = \"threshold\"\n".into();
    let child = lonely.spawn(&mut world.command(&[])).unwrap();
    assert_eq!(findings(child), (2, vec!["route.none".into()]));
}

#[test]
fn a_group_that_may_not_probe_roadside_units_is_named() {
    if !can_drive() {
        return;
    }
    let mut world = World::new();
    world.configuration += "[observe]\nvanetza = \"127.0.0.1:5051\"\n[roadside]\ninterface = \"two\"\ntunnel = \"vxlan\"\nslots = 1\n\
         [[roadside.unit]]\nstation = 1\nname = \"rsu\"\naddress = \"10.80.0.1\"\ninner = \"10.81.0.2/24\"\n";
    world.expect(0, &[]);
    world.set("net/ipv4/ping_group_range", "1 0");
    world.expect(1, &["probes.denied"]);
}

async fn add_bare_interface() {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    handle.link().add(rtnetlink::LinkVeth::new("bare", "bare-peer").up().build()).execute().await.unwrap();
    let peer = rtnetlink::LinkUnspec::new_with_name("bare-peer").up().build();
    handle.link().set(peer).execute().await.unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn faults_of_the_file_and_of_its_keys_are_named() {
    if !can_drive() {
        return;
    }
    let (mut world, _gateway) = World::new().with_tunnel();
    let key = world.folder.path().join("key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    world.expect(2, &["key.unusable"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::create(&key).unwrap().write_all(b"no key").unwrap();
    world.expect(2, &["key.unusable"]);
    fs::remove_file(&key).unwrap();
    world.expect(2, &["key.unusable"]);
    world.configuration = format!("{PATHS}[log]\nevents = \"/nowhere/events\"\n");
    world.expect(1, &["log.unwritable"]);
    world.configuration = "[[path]\n".into();
    world.expect(2, &["configuration.invalid"]);
}

#[test]
fn faults_of_gateways_and_units_are_named() {
    if !can_drive() {
        return;
    }
    let mut world = World::new();
    let gateway = "[tunnel]\nencryption = \"none\"\naddress = [\"10.77.0.1/24\"]\nlisten = \"0.0.0.0:7000\"\n\
                   [[tunnel.vehicle]]\nname = \"bus\"\naddress = [\"10.77.0.2/32\"]\n";
    world.configuration = gateway.into();
    world.expect(0, &[]);
    let _taken = world.testbed.vehicle.enter(|| UdpSocket::bind("0.0.0.0:7000").unwrap()).unwrap();
    world.expect(2, &["listen.taken"]);
    world.configuration =
        "[observe]\nvanetza = \"127.0.0.1:5051\"\n[unit]\nstation = 1001\nprefix = \"10.81.0.0/24\"\n\
                           address = \"10.90.0.11\"\ntunnel = \"vxlan\"\ninterface = \"one\"\n"
            .into();
    world.set("net/ipv4/ip_forward", "0");
    world.expect(2, &["forwarding.off"]);
    world.set("net/ipv4/ip_forward", "1");
    world.expect(0, &[]);
}

#[test]
fn a_gateway_that_is_not_reached_is_named() {
    if !can_drive() {
        return;
    }
    let (mut world, gateway) = World::new().with_tunnel();
    drop(gateway);
    world.expect(2, &["gateway.refused", "gateway.refused"]);
    let mute = world.testbed.server.enter(|| UdpSocket::bind(SocketAddr::from((SERVER, 7000))).unwrap()).unwrap();
    world.expect(2, &["gateway.silent", "gateway.silent"]);
    drop(mute);
    world.configuration = world.configuration.replace(&format!("{SERVER}:7000"), "no-such-host.invalid:7000");
    world.expect(2, &["gateway.unknown"]);
    let (mut world, _gateway) = World::new().with_tunnel();
    world.configuration = world.configuration.replace("[tunnel]", "[tunnel]\nmtu = 9000");
    world.expect(1, &["mtu.tunnel", "mtu.tunnel"]);
}

#[test]
fn a_server_without_mptcp_and_one_that_is_gone_are_named() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let server = format!("{SERVER}:5001");
    world.expect_with(&["--server", &server], 2, &["server.unreachable", "server.unreachable"]);
    let _server = world.testbed.server.enter(|| listen(Protocol::TCP)).unwrap();
    world.expect_with(&["--server", &server], 2, &["mptcp.stripped", "mptcp.stripped"]);
}

#[test]
fn missing_privileges_are_named() {
    if !can_drive() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let world = World::new();
    fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let as_user = || {
        let program = world.folder.path().join("crosslane");
        fs::copy(CROSSLANE, &program).unwrap();
        let mut command = Command::new(program);
        command.args(world.command(&[]).get_args()).uid(65534);
        findings(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert_eq!(world.testbed.vehicle.enter(as_user).unwrap(), (2, vec!["privileges.net-admin".into()]));
    let (world, _gateway) = World::new().with_tunnel();
    let without_tun = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("tmpfs"), "/dev/net", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        findings(world.command(&[]).spawn().unwrap())
    };
    assert_eq!(world.testbed.vehicle.enter(without_tun).unwrap(), (2, vec!["tun.unusable".into()]));
}

#[test]
fn the_reference_lists_the_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_name = |text: &&str| {
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        text.split_once('.').is_some_and(|(kind, fault)| is_word(kind) && is_word(fault))
    };
    let page = fs::read_to_string(root.join("../../docs/reference/doctor.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<String> = rows.filter(is_name).map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    let files = ["src/doctor", "src/doctor/firewall"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    for file in files.into_iter().flatten().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(file).unwrap();
        found.extend(text.split('"').skip(1).step_by(2).filter(is_name).map(str::to_owned));
    }
    assert!(found.len() >= 20, "{found:?}");
    assert_eq!(listed, found);
}
