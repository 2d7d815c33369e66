//! Each error in a scenario's tunnel, wires or datagrams is one sentence with
//! file, line and remedy.

use crosslane_sim::scenario::Scenario;

const VALID: &str = r#"name = "drive"
duration_s = 40
[vehicle]
route = { from_m = [40, 4], to_m = [590, 4], speed_kmh = 50 }
[[cellular]]
name = "lte"
rat = "lte"
rate_mbit_s = 20
delay_ms = 25
[traffic]
kind = "messages"
size_bytes = 1000
every_ms = 20
[[strategy]]
name = "mine"
base = "tunnel"
"#;

const MESSAGES: &str = "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20";

/// Text replaced in the valid scenario, its replacement, and the expected error.
const TABLE: [(&str, &str, &str); 15] = [
    ("size_bytes = 1000", "protocol = \"sctp\"\nsize_bytes = 1000", "line 12: `protocol`: unknown word `sctp`; "),
    (
        "size_bytes = 1000",
        "protocol = \"udp\"\nsize_bytes = 1473",
        "line 13: a datagram of 1473 bytes is outside 24 to 1472; choose a size in this range",
    ),
    (
        "size_bytes = 1000",
        "protocol = \"udp\"\nsize_bytes = 16",
        "line 13: a datagram of 16 bytes is outside 24 to 1472; choose",
    ),
    (
        MESSAGES,
        "kind = \"bulk\"\nprotocol = \"udp\"",
        "line 12: UDP cannot carry traffic of kind `bulk`; write `protocol = \"tcp\"`, or leave it out",
    ),
    (
        MESSAGES,
        "kind = \"stream\"\nprotocol = \"tcp\"\nsize_bytes = 1000\nrate_mbit_s = 5",
        "line 12: TCP cannot carry traffic of kind `stream`; write `protocol = \"udp\"`, or leave it out",
    ),
    (MESSAGES, "kind = \"stream\"\nsize_bytes = 1000", "line 11: traffic of kind `stream` needs `rate_mbit_s`; add it"),
    (
        MESSAGES,
        "kind = \"stream\"\nsize_bytes = 1000\nrate_mbit_s = 5\nevery_ms = 2",
        "line 14: traffic of kind `stream` has no `every_ms`; leave it out, or change the kind",
    ),
    (
        MESSAGES,
        "kind = \"stream\"\nsize_bytes = 1500\nrate_mbit_s = 5",
        "line 12: a datagram of 1500 bytes is outside 24 to 1472",
    ),
    (
        MESSAGES,
        "kind = \"stream\"\nsize_bytes = 1000\nrate_mbit_s = 0",
        "line 13: `rate_mbit_s`: 0 is not above 0 and up to 10000",
    ),
    (
        "every_ms = 20",
        "every_ms = 20\nrate_mbit_s = 5",
        "line 14: traffic of kind `messages` has no `rate_mbit_s`; leave it out, or change the kind",
    ),
    ("[traffic]", "[[wire]]\nname = \"lte\"\n[traffic]", "line 11: the path name `lte` is taken; choose another"),
    (
        "[traffic]",
        "[[wire]]\nname = \"w\"\nrate_mbit_s = 0\n[traffic]",
        "line 12: `rate_mbit_s`: 0 is not above 0 and up to 100000; choose a number in this range",
    ),
    (
        "[traffic]",
        "[[wire]]\nname = \"w\"\ndelay_ms = 3\n[traffic]",
        "line 12: unknown key `delay_ms`; choose from `name`, `rat`, `rate_mbit_s`, `queue_ms`",
    ),
    ("[traffic]", "[tunnel]\nmtu = 100\n[traffic]", "line 11: `mtu`: 100 is outside 576 to 1500; choose"),
    (
        "name = \"mine\"",
        "name = \"tunnel-plain\"",
        "line 15: the strategy name `tunnel-plain` is taken; choose another",
    ),
];

#[test]
fn every_error_is_one_sentence_with_file_line_and_remedy() {
    assert!(Scenario::parse(VALID, "drive.toml").is_ok());
    for (from, to, expected) in TABLE {
        assert!(VALID.contains(from), "{from}");
        let text = VALID.replacen(from, to, 1);
        let Err(error) = Scenario::parse(&text, "drive.toml") else {
            panic!("accepted: {to}");
        };
        let sentence = error.to_string();
        assert!(sentence.starts_with("while reading drive.toml"), "{sentence}");
        assert!(sentence.contains(expected), "{to}: {sentence}");
        assert!(!error.remedy.is_empty() && !sentence.contains('\n'), "{sentence}");
    }
}
