//! `crosslane reload` reads the strategy's tree again, whole or not at all.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::{Agent, await_states, command, run};
use crate::program::can_drive;
use crate::program::links::{self, exchange};
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[[path]]
name = "near"
rat = "lte"
[[path]]
name = "far"
rat = "nr"
[service]
mode = "backup"
[strategy]
name = "learned"
tree = "tree.json"
[log]
events = "EVENTS"
"#;

/// Writes a tree for a strategy: how sure it is that the path with the shorter RTT is first.
fn write_tree(folder: &Path, strategy: &str, shorter_first: f64) {
    let text = format!(
        "{{\"format\": \"crosslane-tree\", \"version\": 1, \"strategy\": {strategy:?}, \"nodes\": [\n\
         {{\"feature\": \"a-b.rtt_ms\", \"at_most\": 0, \"yes\": 1, \"no\": 2}},\n\
         {{\"a_first\": {shorter_first}}}, {{\"a_first\": {}}}]}}\n",
        1.0 - shorter_first
    );
    fs::write(folder.join("tree.json"), text).unwrap();
}

#[test]
fn a_tree_is_read_again_whole_or_not_at_all_and_decides_at_once() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = links::links_of(&["near", "far"], &[(10.0, 5), (10.0, 25)], &[]);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let workdir = TempDir::new().unwrap();
    write_tree(workdir.path(), "learned", 0.1);
    let events = workdir.path().join("events.jsonl");
    let agent =
        Agent::spawn(&testbed.vehicle, workdir, |workdir, ready| command(workdir, CONFIGURATION, &events, ready));
    let folder = agent.workdir.path();
    let (client, server) = links::connect(&testbed, &listener);
    await_states(&testbed.vehicle, ["backup", "active"]);
    assert_eq!(run(&testbed.vehicle, folder, &["reload"]).stdout, "nothing has changed\n");

    write_tree(folder, "learned", 0.9);
    assert_eq!(run(&testbed.vehicle, folder, &["reload"]).stdout, "another tree orders the paths, with 3 nodes\n");
    await_states(&testbed.vehicle, ["active", "backup"]);
    exchange(&client, &server);

    let whole = fs::read_to_string(folder.join("tree.json")).unwrap();
    fs::write(folder.join("tree.json"), &whole[..60]).unwrap();
    let cut = run(&testbed.vehicle, folder, &["reload"]);
    assert_eq!(cut.code, Some(2), "{cut:?}");
    assert!(cut.sentence().contains("tree.json: EOF while parsing"), "{cut:?}");
    assert!(cut.sentence().contains("at line 1 column 60") && cut.sentence().contains("learn train"), "{cut:?}");
    write_tree(folder, "smartps", 0.1);
    let other = run(&testbed.vehicle, folder, &["reload"]);
    assert!(other.sentence().contains("the tree is for strategy \"smartps\", and this is `learned`"), "{other:?}");
    sleep(Duration::from_millis(1500));
    await_states(&testbed.vehicle, ["active", "backup"]);

    let file = folder.join("agent.toml");
    let present = fs::read_to_string(&file).unwrap();
    fs::write(&file, present.replace("tree = \"tree.json\"\n", "")).unwrap();
    let without = "strategy.tree is as in the file\nno tree orders the paths any more\n";
    assert_eq!(run(&testbed.vehicle, folder, &["reload"]).stdout, without);
    write_tree(folder, "learned", 0.1);
    fs::write(&file, &present).unwrap();
    let with = "strategy.tree is as in the file\nanother tree orders the paths, with 3 nodes\n";
    assert_eq!(run(&testbed.vehicle, folder, &["reload"]).stdout, with);
    await_states(&testbed.vehicle, ["backup", "active"]);
    exchange(&client, &server);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    assert!(events.contains("by request: another tree orders the paths, with 3 nodes"), "{events}");
}
