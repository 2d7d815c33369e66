//! `crosslane mptcp` on the real kernel: each verb by its effect as sock_diag and the peer report it, each refusal with
//! the kernel's words. Two namespaces with two networks between them, both with IPv4 and IPv6.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::netlink::diag::{Connection, Diag, SubflowInfo};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Namespace;
use netlink_packet_route::link::{InfoData, InfoVeth};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

/// Longest time until an effect is visible.
const SOON: Duration = Duration::from_secs(5);
/// Addresses of the client and of the server: in the first network, in the second.
const V4: Addresses = Addresses { client: ["10.0.1.2", "10.0.2.2"], server: ["10.0.1.1", "10.0.2.1"] };
const V6: Addresses = Addresses { client: ["fd00:1::2", "fd00:2::2"], server: ["fd00:1::1", "fd00:2::1"] };

#[derive(Clone, Copy)]
struct Addresses {
    client: [&'static str; 2],
    server: [&'static str; 2],
}

impl Addresses {
    fn suffix(self) -> &'static str {
        if self.client[0].contains(':') { "6" } else { "4" }
    }
}

struct World {
    client: Namespace,
    server: Namespace,
}

impl World {
    /// Both namespaces, with these path managers.
    fn new(client_manager: PathManager, server_manager: PathManager) -> World {
        let (client, server) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        for (namespace, manager) in [(&client, client_manager), (&server, server_manager)] {
            for name in ["accept_dad", "router_solicitations"] {
                namespace.set_sysctl(&format!("net/ipv6/conf/default/{name}"), "0").unwrap();
            }
            // An ADD_ADDR of an IPv6 address with a port has no room beside them.
            namespace.set_sysctl("net/ipv4/tcp_timestamps", "0").unwrap();
            namespace.enter(|| select_path_manager(manager).unwrap()).unwrap();
        }
        let peer = server.as_fd().as_raw_fd();
        for (network, name) in ["one", "two"].into_iter().enumerate() {
            let pair = || runtime().block_on(make_pair(name, peer));
            client.enter(pair).unwrap();
            for (namespace, [four, six]) in [
                (&client, [V4.client[network], V6.client[network]]),
                (&server, [V4.server[network], V6.server[network]]),
            ] {
                namespace.enter(|| runtime().block_on(bring_up(name, four, six))).unwrap();
            }
        }
        // An IPv6 address becomes usable only when the link is ready.
        for (namespace, addresses) in [(&client, V6.client), (&server, V6.server)] {
            let bind = |address| mptcp(ip(address)).bind(&SocketAddr::new(ip(address), 0).into()).ok();
            for address in addresses {
                until("a usable address", || namespace.enter(|| bind(address)).unwrap());
            }
        }
        World { client, server }
    }

    fn user_space() -> World {
        World::new(PathManager::UserSpace, PathManager::UserSpace)
    }

    fn connect(&self, addresses: Addresses) -> Connected {
        let listener = self.server.enter(|| listen(ip(addresses.server[0]))).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let connect = || {
            let socket = mptcp(ip(addresses.client[0]));
            socket.bind(&SocketAddr::new(ip(addresses.client[0]), 0).into()).unwrap();
            socket.connect(&SocketAddr::new(ip(addresses.server[0]), port).into()).unwrap();
            socket
        };
        let client = self.client.enter(connect).unwrap();
        let server = listener.accept().unwrap().0;
        exchange(&client, &server);
        let address = client.local_addr().unwrap().as_socket().unwrap();
        let token = |namespace: &Namespace| {
            let connections = namespace.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
            let is_it = |from: &Connection| [from.local, from.remote].contains(&address);
            connections.into_iter().find(is_it).unwrap().token.0.to_string()
        };
        let tokens = [token(&self.client), token(&self.server)];
        Connected { client, server, port: port.to_string(), tokens, _listener: listener }
    }
}

/// Both ends of a connection to `port`, with the tokens of the client and of the server.
struct Connected {
    client: Socket,
    server: Socket,
    port: String,
    tokens: [String; 2],
    _listener: Socket,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mptcp(ip: IpAddr) -> Socket {
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

fn listen(ip: IpAddr) -> Socket {
    let socket = mptcp(ip);
    socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
    socket.listen(8).unwrap();
    socket
}

/// Data makes a connection fully established at both ends.
fn exchange(client: &Socket, server: &Socket) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        from.write_all(b"hello").unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn make_pair(name: &str, peer: i32) {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let at_peer = rtnetlink::LinkUnspec::new_with_name(name).setns_by_fd(peer).build();
    let pair = rtnetlink::LinkVeth::new(name, name).set_info_data(InfoData::Veth(InfoVeth::Peer(at_peer)));
    handle.link().add(pair.build()).execute().await.unwrap();
}

async fn bring_up(name: &str, four: &str, six: &str) {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let index = nix::net::if_::if_nametoindex(name).unwrap();
    for (address, prefix) in [(four, 24), (six, 64)] {
        handle.address().add(index, ip(address), prefix).execute().await.unwrap();
    }
    for interface in [index, 1] {
        let up = rtnetlink::LinkUnspec::new_with_index(interface).up().build();
        handle.link().set(up).execute().await.unwrap();
    }
}

fn start(namespace: &Namespace, arguments: &[&str]) -> Child {
    let mut command = Command::new(CROSSLANE);
    command.arg("mptcp").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap()
}

fn run(namespace: &Namespace, arguments: &[&str]) -> ProgramOutput {
    start(namespace, arguments).wait_with_output().unwrap().into()
}

/// The output of a command that succeeds.
fn text(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = run(namespace, arguments);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{arguments:?}: {output:?}");
    output.stdout
}

/// A command that succeeds and prints nothing.
fn quiet(namespace: &Namespace, arguments: &[&str]) {
    assert_eq!(text(namespace, arguments), "", "{arguments:?}");
}

fn json_of(namespace: &Namespace, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(namespace, &[arguments, &["--json"]].concat())).unwrap()
}

/// What the kernel refuses: the sentence, and the object of `--json`.
fn refusal(namespace: &Namespace, arguments: &[&str]) -> (String, Value) {
    let output = run(namespace, arguments);
    assert_eq!(output.code, Some(1), "{output:?}");
    let sentence = output.sentence().to_owned();
    let output = run(namespace, &[arguments, &["--json"]].concat());
    assert_eq!(output.stderr.trim_end(), sentence);
    (sentence, serde_json::from_str(&output.stdout).unwrap())
}

/// `crosslane mptcp events`, subscribed.
struct Events {
    child: Child,
    lines: Receiver<String>,
}

impl Events {
    fn of(namespace: &Namespace, options: &[&str]) -> Events {
        let mut child = start(namespace, &[&["events"], options].concat());
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let netlink = format!("/proc/{}/net/netlink", child.id());
        let began = Instant::now();
        // Columns: socket, protocol, port, groups.
        let subscribed = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1] == "16" && words[3].chars().any(|digit| digit != '0')
        };
        while !std::fs::read_to_string(&netlink).is_ok_and(|text| text.lines().skip(1).any(subscribed)) {
            assert!(began.elapsed() < SOON, "it does not subscribe");
            sleep(Duration::from_millis(5));
        }
        Events { child, lines }
    }

    fn line(&self, event: &str) -> String {
        let began = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(SOON.saturating_sub(began.elapsed())) {
            if line.contains(&format!("event:{event},")) || line.contains(&format!("\"event\":\"{event}\"")) {
                return line;
            }
        }
        panic!("no event {event}, {} s after the last one", began.elapsed().as_secs());
    }

    /// The next event of this name, from the text.
    fn next(&self, event: &str) -> Event {
        let line = self.line(event);
        let fields = line.split(',').map(|field| field.split_once(':').unwrap());
        Event(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Debug)]
struct Event(Vec<(String, String)>);

impl Event {
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_else(|| {
            panic!("no {name} in {self:?}");
        })
    }

    #[track_caller]
    fn expect(&self, fields: &[(&str, &str)]) {
        for (name, value) in fields {
            assert_eq!(self.get(name), *value, "{name} of {self:?}");
        }
    }
}

/// The subflow between these addresses, as sock_diag shows it.
fn subflow(namespace: &Namespace, local: &str, remote: &str) -> Option<SubflowInfo> {
    let all = namespace.enter(|| Diag::open().unwrap().subflows().unwrap()).unwrap();
    let is_it = |found: &SubflowInfo| (found.subflow.local.ip(), found.subflow.remote.ip()) == (ip(local), ip(remote));
    all.into_iter().find(|found| is_it(found) && found.tcp.state == crosslane::netlink::TcpState::Established)
}

fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn events_have_every_attribute_of_both_ends_in_text_and_json() {
    if !can_drive() {
        return;
    }
    for addresses in [V4, V6] {
        let world = World::user_space();
        let (of_client, of_server) = (Events::of(&world.client, &[]), Events::of(&world.server, &["--json"]));
        let connected = world.connect(addresses);
        let local = connected.client.local_addr().unwrap().as_socket().unwrap();
        let (suffix, sport) = (addresses.suffix(), local.port().to_string());
        let (saddr, daddr) = (format!("saddr{suffix}"), format!("daddr{suffix}"));
        let created = of_client.next("created");
        created.expect(&[
            ("type", "1"),
            ("token", &connected.tokens[0]),
            ("family", if suffix == "4" { "2" } else { "10" }),
            (&saddr, addresses.client[0]),
            (&daddr, addresses.server[0]),
            ("sport", &sport),
            ("dport", &connected.port),
            ("server_side", "0"),
        ]);
        assert_eq!(created.0[0].0, "type", "the type is first: {created:?}");
        let created: Value = serde_json::from_str(&of_server.line("created")).unwrap();
        assert_eq!(created["type"], 1);
        assert_eq!(created["token"].to_string(), connected.tokens[1]);
        assert_eq!(created[&saddr], addresses.server[0]);
        assert_eq!(created["dport"].to_string(), sport);
        assert_eq!(created["server_side"], 1);
        let tokens = connected.tokens.clone();
        drop(connected);
        assert_eq!(of_client.next("closed").get("token"), tokens[0]);
        let closed: Value = serde_json::from_str(&of_server.line("closed")).unwrap();
        assert_eq!(closed["token"].to_string(), tokens[1]);
    }
}

#[test]
fn an_announced_address_reaches_the_peer_until_it_is_withdrawn() {
    if !can_drive() {
        return;
    }
    for addresses in [V4, V6] {
        let world = World::user_space();
        let connected = world.connect(addresses);
        let peer = Events::of(&world.server, &[]);
        let (token, address) = (&connected.tokens[0], addresses.client[1]);
        let daddr = format!("daddr{}", addresses.suffix());
        let announce = ["announce", address, "--token", token, "--device", "two"];
        quiet(&world.client, &[&announce[..], &["--id", "5"]].concat());
        let port = connected.client.local_addr().unwrap().as_socket().unwrap().port().to_string();
        let announced = [("type", "6"), ("token", &connected.tokens[1]), (&daddr, address)];
        peer.next("announced").expect(&[&announced[..], &[("rem_id", "5"), ("dport", &port)]].concat());
        // The kernel sends no second ADD_ADDR before the peer has echoed the first.
        sleep(Duration::from_millis(300));
        quiet(&world.client, &[&announce[..], &["--id", "6", "--port", "50003"]].concat());
        peer.next("announced").expect(&[&announced[..], &[("rem_id", "6"), ("dport", "50003")]].concat());
        let token = format!("{:#x}", token.parse::<u32>().unwrap());
        let found = json_of(&world.client, &["endpoint", "list", "--token", &token]);
        assert_eq!(found[1]["port"], 50003, "the addresses of the connection: {found}");
        assert_eq!(json_of(&world.client, &["endpoint", "get", "6", "--token", &token]), found[1]);
        for id in ["5", "6"] {
            quiet(&world.client, &["withdraw", "--token", &token, "--id", id]);
            peer.next("removed").expect(&[("type", "7"), ("token", &connected.tokens[1]), ("rem_id", id)]);
        }
    }
}

#[test]
fn a_subflow_is_created_at_a_listener_and_destroyed() {
    if !can_drive() {
        return;
    }
    for addresses in [V4, V6] {
        let world = World::user_space();
        let connected = world.connect(addresses);
        let (of_client, of_server) = (Events::of(&world.client, &[]), Events::of(&world.server, &[]));
        let mut listener = start(&world.server, &["listen", addresses.server[1], "--port", "50003"]);
        of_server.next("listener_created").expect(&[("type", "15"), ("sport", "50003")]);
        let (local, remote) = (addresses.client[1], addresses.server[1]);
        // A server accepts subflows at another port only if it has announced it.
        quiet(&world.server, &["announce", remote, "--token", &connected.tokens[1], "--id", "9", "--port", "50003"]);
        of_client.next("announced").expect(&[("rem_id", "9"), ("dport", "50003")]);
        let subflow_of =
            ["--token", &connected.tokens[0], "--local", local, "--remote", remote, "--remote-port", "50003"];
        quiet(&world.client, &[&["create"], &subflow_of[..], &["--local-id", "23", "--flags", "backup"]].concat());
        let joined = of_client.next("sub_established");
        let saddr = format!("saddr{}", addresses.suffix());
        joined.expect(&[("type", "10"), ("loc_id", "23"), ("rem_id", "9"), (&saddr, local), ("dport", "50003")]);
        of_server.next("sub_established").expect(&[("rem_id", "23"), (&saddr, remote), ("backup", "1")]);
        for (namespace, [local, remote]) in [(&world.client, [local, remote]), (&world.server, [remote, local])] {
            let found = subflow(namespace, local, remote).expect("sock_diag shows it");
            assert!(found.subflow.backup, "{found:?}");
        }
        let port = joined.get("sport");
        quiet(&world.client, &[&["destroy"], &subflow_of[..], &["--local-port", port]].concat());
        of_client.next("sub_closed").expect(&[("type", "11"), ("loc_id", "23"), ("sport", port)]);
        of_server.next("sub_closed").expect(&[("rem_id", "23"), ("dport", port)]);
        until("it is gone", || subflow(&world.client, local, remote).is_none().then_some(()));
        exchange(&connected.client, &connected.server);
        kill(Pid::from_raw(listener.id() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(listener.wait().unwrap().code(), Some(0));
        of_server.next("listener_closed").expect(&[("type", "16"), ("sport", "50003")]);
    }
}

#[test]
fn the_priority_of_a_subflow_changes_at_both_ends() {
    if !can_drive() {
        return;
    }
    for addresses in [V4, V6] {
        let world = World::user_space();
        let connected = world.connect(addresses);
        let peer = Events::of(&world.server, &[]);
        let (local, remote) = (addresses.client[0], addresses.server[0]);
        for (flag, backup) in [("backup", true), ("nobackup", false)] {
            let subflow_of = ["--token", &connected.tokens[0], "--local", local, "--remote", remote];
            quiet(&world.client, &[&["priority"], &subflow_of[..], &["--flags", flag]].concat());
            let expected = [("type", "13"), ("backup", if backup { "1" } else { "0" })];
            peer.next("sub_priority").expect(&expected);
            for (namespace, [local, remote]) in [(&world.client, [local, remote]), (&world.server, [remote, local])] {
                assert_eq!(subflow(namespace, local, remote).unwrap().subflow.backup, backup);
            }
        }
    }
}

#[test]
fn endpoints_have_every_attribute_and_open_or_announce_their_addresses() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, PathManager::UserSpace);
    let client = &world.client;
    assert_eq!(text(client, &["endpoint", "list"]), "");
    quiet(client, &["endpoint", "add", "10.0.1.1"]);
    quiet(client, &["endpoint", "add", "10.0.1.3", "--flags", "subflow,fullmesh", "--dev", "one"]);
    quiet(client, &["endpoint", "add", "fd00:2::2", "--flags", "signal,backup", "--port", "4000", "--id", "100"]);
    quiet(client, &["endpoint", "add", "10.0.1.4", "--flags", "laminar"]);
    let expected = "id 1 flags  10.0.1.1\nid 2 flags subflow,fullmesh dev one 10.0.1.3\nid 100 flags signal,backup \
                    fd00:2::2 4000\nid 101 flags laminar 10.0.1.4\n";
    assert_eq!(text(client, &["endpoint", "list"]), expected);
    assert_eq!(text(client, &["endpoint", "get", "2"]), "id 2 flags subflow,fullmesh dev one 10.0.1.3\n");
    let flags = ["signal", "backup"];
    let expected = json!({ "id": 100, "address": "fd00:2::2", "port": 4000, "flags": flags, "device": null });
    assert_eq!(json_of(client, &["endpoint", "list"])[2], expected);
    assert_eq!(json_of(client, &["endpoint", "get", "100"]), expected);
    quiet(client, &["endpoint", "set", "10.0.1.3", "--flags", "backup"]);
    assert_eq!(text(client, &["endpoint", "get", "2"]), "id 2 flags subflow,backup dev one 10.0.1.3\n");
    quiet(client, &["endpoint", "set", "--id", "2", "--flags", "nobackup,fullmesh"]);
    assert_eq!(text(client, &["endpoint", "get", "2"]), "id 2 flags subflow,fullmesh dev one 10.0.1.3\n");
    quiet(client, &["endpoint", "delete", "100"]);
    assert_eq!(json_of(client, &["endpoint", "list"]).as_array().unwrap().len(), 3);
    quiet(client, &["endpoint", "flush"]);
    assert_eq!(text(client, &["endpoint", "list"]), "");

    quiet(client, &["limits", "set", "--subflows", "4"]);
    let peer = Events::of(&world.server, &[]);
    quiet(client, &["endpoint", "add", V4.client[1], "--flags", "subflow,signal"]);
    let connected = world.connect(V4);
    peer.next("announced").expect(&[("daddr4", V4.client[1]), ("rem_id", "1")]);
    until("a subflow from the endpoint", || subflow(client, V4.client[1], V4.server[0]));
    quiet(client, &["endpoint", "delete", "1"]);
    peer.next("removed").expect(&[("rem_id", "1")]);
    // The first subflow has the id 0 and is deleted by its address.
    quiet(client, &["endpoint", "delete", "0", V4.client[0]]);
    peer.next("removed").expect(&[("rem_id", "0")]);
    drop(connected);
}

#[test]
fn a_limit_that_is_not_given_stays() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, PathManager::Kernel);
    let client = &world.client;
    assert_eq!(text(client, &["limits", "get"]), "accept 0\nsubflows 2\n");
    quiet(client, &["limits", "set", "--add-addr-accepted", "3"]);
    assert_eq!(json_of(client, &["limits", "get"]), json!({ "add_addr_accepted": 3, "subflows": 2 }));
    assert_eq!(json_of(client, &["limits", "set", "--subflows", "8"]), json!({ "ok": true }));
    assert_eq!(text(client, &["limits", "get"]), "accept 3\nsubflows 8\n");
    let (sentence, refused) = refusal(client, &["limits", "set", "--subflows", "9"]);
    assert!(sentence.contains("while asking the kernel to set the limits: "), "{sentence}");
    assert_eq!((&refused["ok"], &refused["errno"]), (&json!(false), &json!(22)), "{refused}");
    assert_eq!(text(client, &["limits", "get"]), "accept 3\nsubflows 8\n");
}

#[test]
fn refusals_have_the_kernels_words_and_number() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, PathManager::UserSpace);
    let connected = world.connect(V4);
    let [client_token, server_token] = &connected.tokens;
    let refused = |namespace: &Namespace, line: &str, words: &str, errno: &str| {
        let (sentence, object) = refusal(namespace, &line.split(' ').collect::<Vec<_>>());
        assert!(sentence.contains(&format!("{words} ({errno}: ")), "{line}: {sentence}");
        assert_eq!((object["text"].as_str(), object["name"].as_str()), (Some(words), Some(errno)), "{line}");
    };
    let announce = |token: &str, id: u8| format!("announce 10.0.2.2 --token {token} --id {id}");
    refused(&world.client, &announce(client_token, 5), "userspace PM not selected", "EINVAL");
    refused(&world.server, &announce("1", 5), "invalid token", "EINVAL");
    refused(&world.server, &announce(server_token, 0), "invalid addr id", "EINVAL");
    let create = format!("create --token {server_token} --local 10.0.2.1 --remote fd00:2::2 --remote-port 1");
    let (sentence, _) = refusal(&world.server, &create.split(' ').collect::<Vec<_>>());
    assert!(sentence.contains("families"), "{sentence}");
    let destroy = format!("destroy --token {server_token} --local 10.0.2.1 --remote 10.0.2.2 --remote-port 1");
    refused(&world.server, &destroy, "missing local port", "EINVAL");
    let (sentence, object) = refusal(&world.server, &["create", "--token", server_token, "--local", "10.0.2.1"]);
    assert!(sentence.contains("; attribute 6 is missing; "), "MPTCP_PM_ATTR_ADDR_REMOTE: {sentence}");
    assert_eq!((&object["missing_attribute"], &object["text"]), (&json!(6), &Value::Null));
    refused(&world.client, "endpoint get 77", "address not found", "EINVAL");
    quiet(&world.client, &["endpoint", "add", "10.0.2.2"]);
    let (sentence, object) = refusal(&world.client, &["endpoint", "add", "10.0.2.2"]);
    assert_eq!((&object["errno"], sentence.contains("EEXIST")), (&json!(17), true), "{sentence}");
}

#[test]
fn what_the_program_itself_rejects_is_one_sentence() {
    if !can_drive() {
        return;
    }
    let world = World::user_space();
    for (line, expected) in [
        ("endpoint add 10.0.1.300", "\"10.0.1.300\" is no address"),
        ("endpoint add 10.0.1.3 --flags signal,loud", "there is no flag \"loud\""),
        ("endpoint add 10.0.1.3 --dev none", "while looking for the interface \"none\": ENODEV"),
        ("announce 10.0.1.3 --token ten --id 1", "\"ten\" is no token"),
        ("announce 10.0.1.3 --token 10 --id 256", "256 is not in 0..=255"),
        ("endpoint set --flags backup", "<ADDRESS>"),
    ] {
        let output = run(&world.client, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(crate::program::complaint(&output, expected), None);
    }
    let taken = world.client.enter(|| listen(ip(V4.client[0]))).unwrap();
    let port = taken.local_addr().unwrap().as_socket().unwrap().port().to_string();
    let output = run(&world.client, &["listen", V4.client[0], "--port", &port]);
    assert!(output.sentence().contains("Address already in use"), "{output:?}");
}

#[test]
fn events_end_when_nothing_reads_them() {
    if !can_drive() {
        return;
    }
    let world = World::user_space();
    let mut child = start(&world.client, &["events"]);
    drop(child.stdout.take());
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}
