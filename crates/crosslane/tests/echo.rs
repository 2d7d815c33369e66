//! Echo requests of an agent over paths that carry nothing, on the kernel.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::{Agent, run};
use crate::program::can_drive;
use crate::program::links::{allow_ipv6, two_links};
use crosslane::control::report::{AgentStatus, EchoReport, PathReport};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Namespace;

/// `nr` is the reserve; ADDRESS is where the requests go.
const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[service]
mode = "backup"
prefer = ["lte", "nr"]
[strategy]
name = "adaptive"
[echo]
address = "ADDRESS"
period_ms = 50
[log]
events = "EVENTS"
"#;
/// Longer than the agent takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn status(vehicle: &Namespace) -> AgentStatus {
    let output = run(vehicle, Path::new("/"), &["status", "--json"]);
    serde_json::from_str(&output.stdout).unwrap_or_else(|cause| panic!("{cause}: {output:?}"))
}

/// Waits until both paths are as asked; returns them.
fn await_paths(vehicle: &Namespace, what: &str, are_so: impl Fn(&[PathReport]) -> bool) -> Vec<PathReport> {
    let began = Instant::now();
    loop {
        let paths = status(vehicle).paths;
        if are_so(&paths) {
            return paths;
        }
        assert!(began.elapsed() < LIMIT, "not {what}: {paths:#?}");
        sleep(Duration::from_millis(50));
    }
}

fn echo(path: &PathReport) -> EchoReport {
    path.echo.unwrap_or_else(|| panic!("no requests: {path:?}"))
}

#[test]
fn requests_leave_over_the_interface_of_each_path_and_a_dead_reserve_is_noticed() {
    if !can_drive() {
        return;
    }
    let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
    let vehicle = &testbed.vehicle;
    vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let agent = Agent::start(vehicle, &CONFIGURATION.replace("ADDRESS", "10.255.0.1"));
    let answers = |path: &PathReport| echo(path).rtt_ms.is_some_and(|rtt_ms| rtt_ms >= 10.0);
    await_paths(vehicle, "answered", |paths| paths.iter().all(answers));
    emulator.control().set_on(1, false).unwrap();
    let is_dead = |path: &PathReport| path.belief == "fading" && path.belief_reason.rule == "quality.echo";
    let dead = await_paths(vehicle, "noticed", |paths| is_dead(&paths[1]));
    // If those of `nr` left over `lte`, they would be answered, and no more would be received over `nr`.
    assert_eq!(dead[0].belief, "good", "{dead:#?}");
    sleep(Duration::from_secs(1));
    let later = status(vehicle).paths;
    let received = |paths: &[PathReport]| [0, 1].map(|place| echo(&paths[place]).received_bytes);
    assert!(received(&later)[0] > received(&dead)[0] && received(&later)[1] == received(&dead)[1], "{later:#?}");
    assert!(later[1].sent_bytes > dead[1].sent_bytes, "they leave over its interface: {later:#?}");
    emulator.control().set_on(1, true).unwrap();
    let back = await_paths(vehicle, "back", |paths| paths[1].belief == "good");
    assert_eq!(back[1].belief_reason.rule, "quality.return");
    let text = run(vehicle, Path::new("/"), &["status"]).stdout;
    assert!(text.contains("echo requests") && text.contains("the last answer"), "{text}");
    let (events, stderr) = agent.end();
    assert!(!events.contains("\"fault\"") && stderr.is_empty(), "{stderr}{events}");
}

#[test]
fn requests_over_ipv6_are_answered() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "nr"], 10.0, 5);
    allow_ipv6(&testbed);
    let wire = |namespace: &Namespace, host: u16| {
        let add = move || {
            let mut wiring = crosslane::testbed::Wiring::open().unwrap();
            for (place, name) in ["lte", "nr"].into_iter().enumerate() {
                let interface = wiring.index(name).unwrap();
                let address = std::net::Ipv6Addr::new(0xfd00, place as u16, 0, 0, 0, 0, 0, host);
                wiring.add_address(interface, address, 64).unwrap();
            }
        };
        namespace.enter(add).unwrap();
    };
    wire(&testbed.vehicle, 2);
    wire(&testbed.server, 1);
    // The server's address on the first link; the second path does not reach it.
    let agent = Agent::start(&testbed.vehicle, &CONFIGURATION.replace("ADDRESS", "fd00::1"));
    let answered = |paths: &[PathReport]| echo(&paths[0]).rtt_ms.is_some();
    let paths = await_paths(&testbed.vehicle, "answered", answered);
    let EchoReport { sent_bytes, received_bytes, .. } = echo(&paths[0]);
    assert!(sent_bytes % 48 == 0 && received_bytes % 48 == 0 && received_bytes > 0, "{paths:#?}");
    drop(agent.end());
}

#[test]
fn an_address_that_never_answers_is_said_once_and_the_path_stays_good() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "nr"], 10.0, 5);
    let agent = Agent::start(&testbed.vehicle, &CONFIGURATION.replace("ADDRESS", "198.51.100.7"));
    let sent = |path: &PathReport| echo(path).sent_bytes >= 26 * 28;
    let paths = await_paths(&testbed.vehicle, "sent", |paths| paths.iter().all(sent));
    assert!(paths.iter().all(|path| path.belief == "good" && echo(path).rtt_ms.is_none()), "{paths:#?}");
    sleep(Duration::from_secs(1));
    let (events, _) = agent.end();
    let said = events.lines().filter(|line| line.contains("echo.unanswered")).count();
    assert_eq!(said, 2, "once for each path: {events}");
}
