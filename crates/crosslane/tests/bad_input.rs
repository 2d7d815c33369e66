//! Invalid input of users. The program reports one error message with file, line and
//! remedy, exits with code 2 and leaves no files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{CROSSLANE, ProgramOutput, SCENARIO, assert_none, can_drive, complaint, crosslane, not_run};
use tempfile::TempDir;

/// Faults in a scenario: text that is replaced, its replacement, and the expected message.
const SCENARIOS: &[(&str, &str, &str)] = &[
    ("duration_s", "duration", "s.toml, line 2: unknown key `duration`; did you mean `duration_s`?"),
    ("duration_s = 4", "duration_s = -4", "s.toml, line 2: `duration_s`: -4 is not above 0"),
    ("duration_s = 4", "duration_s = 1e300", "s.toml, line 2: `duration_s`: 1e300 is not above 0 and up to 7200"),
    ("duration_s = 4", "duration_s = ", "s.toml, line 2: "),
    ("rate_mbit_s = 20", "rate_mbit_s = -20", "s.toml, line 21: `rate_mbit_s`: -20 is outside"),
    ("delay_ms = 25", "delay_ms = 25\nloss = 1.5", "s.toml, line 21: `loss`: 1.5 is outside 0 to 1"),
    ("to_m = [100, 4]", "to_m = [900, 4]", "s.toml, line 7: the route's end, [900, 4] m, is outside the map"),
    ("position_m = [0, 0]", "position_m = [0, 50]", "s.toml, line 16: roadside unit `rsu1`, [0, 50] m, is outside"),
    ("radio = \"its-g5\"", "radio = \"g5\"", "s.toml, line 15: there is no radio `g5`"),
    ("rat = \"80211p\"", "rat = \"80211n\"", "s.toml, line 10: `rat`: unknown word `80211n`"),
    ("name = \"lte\"", "name = \"its-g5\"", "s.toml, line 18: the path name `its-g5` is taken"),
    ("size_bytes = 500", "size_bytes = 1e300", "s.toml, line 24: `size_bytes`: invalid type: floating point `1e300`"),
    ("every_ms = 20\n", "", "s.toml, line 23: traffic of kind `messages` needs"),
    ("base = \"threshold\"", "base = \"treshold\"", "s.toml, line 28: there is no strategy `treshold`"),
    ("[strategy.signal]", "silense = 1\n[strategy.signal]", "s.toml, line 29: `silense`: there is no such parameter"),
    (
        "threshold_dbm = -84",
        "threshold_dbm = \"low\"",
        "s.toml, line 30: `signal.threshold_dbm`: this is not a number; choose one",
    ),
    ("threshold_dbm", "treshold_dbm", "s.toml, line 30: `signal.treshold_dbm`: there is no such parameter"),
    (
        "base = \"threshold\"\n[strategy.signal]\nthreshold_dbm",
        "base = \"kernel\"\ndbm",
        "s.toml, line 29: `dbm`: there is no such parameter; remove it",
    ),
    (
        "base = \"threshold\"\n[strategy.signal]\nthreshold_dbm",
        "base = \"oracle\"\nloss",
        "s.toml, line 29: `loss`: -84 is outside 0 to 1",
    ),
    (
        "base = \"threshold\"\n[strategy.signal]\nthreshold_dbm = -84",
        "base = \"tunnel\"\nsteer = \"deadline\"",
        "s.toml, line 29: `steer`: deadline is none of hapanchak, threshold, adaptive, torrinhas, smartps, learned; choose one of them",
    ),
    (
        "base = \"threshold\"\n[strategy.signal]\nthreshold_dbm = -84",
        "base = \"tunnel\"\nmode = \"all\"",
        "s.toml, line 29: `mode`: all is none of aggregate, redundant",
    ),
    ("rate_mbit_s = 20", "trace = \"none.csv\"", "reading none.csv, which s.toml names in line 21: No such file"),
    (
        "rate_mbit_s = 20",
        "trace = \"/dev/zero\"",
        "reading /dev/zero, which s.toml names in line 21: it is no regular file; correct the name",
    ),
    (
        "rate_mbit_s = 20",
        "trace = \"data:a.csv\"",
        "reading data:a.csv, which s.toml names in line 21: this is public data, which is not part of Crosslane; say",
    ),
    ("rate_mbit_s = 20", "trace = \"word.csv\"", "word.csv, line 3: `fast` is not a number"),
    ("rate_mbit_s = 20", "trace = \"short.csv\"", "short.csv, line 3: "),
    ("rate_mbit_s = 20", "trace = \"late.csv\"", "late.csv, line 2: the first row is not at 0 s"),
    ("rate_mbit_s = 20", "trace = \"back.csv\"", "back.csv, line 4: "),
    ("rate_mbit_s = 20", "trace = \"column.csv\"", "column.csv, line 1: "),
    ("rate_mbit_s = 20", "trace = \"empty.csv\"", "empty.csv"),
    ("rate_mbit_s = 20", "trace = \"drive.up\"", "drive.up, line 2: "),
    (
        "rate_mbit_s = 20",
        "trace = \"binary.csv\"",
        "reading binary.csv, which s.toml names in line 21: it is not UTF-8 text, first in line 2;",
    ),
    ("route = { from_m = [40, 4], to_m = [100, 4], speed_kmh = 50 }", "mobility = \"map.csv\"", "map.csv, line 3: "),
];

/// Files that these scenarios refer to.
const FILES: &[(&str, &[u8])] = &[
    ("word.csv", b"t_s,rate_mbit_s\n0,1\n1,fast\n"),
    ("short.csv", b"t_s,rate_mbit_s\n0,1\n1\n"),
    ("late.csv", b"t_s,rate_mbit_s\n3,1\n"),
    ("back.csv", b"t_s,rate_mbit_s\n0,1\n2,1\n1,1\n"),
    ("column.csv", b"t_s,colour\n0,1\n"),
    ("empty.csv", b""),
    ("drive.up", b"1\nx\n"),
    ("binary.csv", b"t_s,rate_mbit_s\n0,\xff\xfe\n"),
    ("map.csv", b"t_s,x_m,y_m\n0,0,0\n1,x,0\n"),
];

/// Faults on the command line: arguments and the expected message.
const CALLS: &[(&str, &str)] = &[
    ("drive", "arguments were not provided: <SCENARIO>; add --help"),
    ("drive none.toml", "while reading scenario none.toml: No such file"),
    ("drive .", "while reading scenario .: Is a directory"),
    ("drive binary.csv", "while reading scenario binary.csv: it is not UTF-8 text"),
    ("drive huge.toml", "while reading scenario huge.toml: it has more than 64 MiB"),
    ("drive s.toml --strategy threshhold", "there is no strategy \"threshhold\"; choose from "),
    ("drive s.toml --strategy kernel,", "there is no strategy \"\"; choose from "),
    ("drive s.toml --seed x", "\"x\" is not a seed; write 7, or 1,2,3, or 1..200"),
    ("drive s.toml --seed 4..1", "\"4..1\" is not a seed"),
    ("drive s.toml --seed 2,1..3", "seed 2 is named twice, and its runs would be the same; name it once"),
    ("drive s.toml --seed -1", "unexpected argument '-1' found; add --help"),
    ("drive s.toml --strategy kernel,threshold,kernel", "strategy \"kernel\" is named twice, and its runs would share"),
    ("drive s.toml --jobs 0", "0 is not in 1..=16"),
    ("drive s.toml --keep", "--keep with 4 runs; name one strategy and one seed"),
    ("drive s.toml --sed 1", "unexpected argument '--sed' found; a similar argument exists: '--seed'"),
    ("drive data.toml --data nowhere", "reading nowhere/a.csv, which data.toml names in line 21: No such file"),
    ("drive data.toml --data s.toml", "reading s.toml/a.csv, which data.toml names in line 21: Not a directory"),
    ("check none.toml", "reading none.toml: No such file or directory (os error 2); name a scenario or a conf"),
    ("check huge.toml", "huge.toml: it has more than 64 MiB"),
    ("fly", "unrecognized subcommand 'fly'"),
    ("agent --config none.toml", "while reading configuration none.toml: No such file"),
    ("agent --config /dev/zero", "while reading configuration /dev/zero: it has more than 64 MiB"),
    ("send", "arguments were not provided: --to"),
    ("send s.toml --to 127.0.0.1 --prefer lo", "--prefer has no effect without --deadline; add"),
    ("send s.toml --to 127.0.0.1 --cost lo=1/GB", "--cost has no effect without --deadline; add"),
    ("send s.toml --to 127.0.0.1 --deadline 0s", "'0s' for '--deadline <WHEN>': the time is 0; give"),
    ("send s.toml --to 127.0.0.1 --deadline soon", "\"soon\" is not a time; write 10s, 500ms, 2m or 1h"),
    ("send s.toml --to 127.0.0.1 --deadline 2001-01-01T00:00:00Z", "the --deadline of s.toml is past; give a later"),
    (
        "send s.toml --to 127.0.0.1 --deadline 1s --deadline 2s",
        "there are 2 deadlines for 1 files; give at most one for each",
    ),
    ("send s.toml --to 127.0.0.1 --deadline 1s --prefer lo,g5", "there is no path (interface) \"g5\"; choose from "),
    ("send s.toml --to 127.0.0.1 --deadline 1s --prefer lo", "\"lo\" is the only path; add"),
    ("send s.toml --to 127.0.0.1 --deadline 1s --cost g5=1/GB", "there is no path (interface) \"g5\"; choose from "),
    ("send s.toml --to 127.0.0.1 --deadline 1s --cost lo=-1/GB", "-1 per GB is outside 0 to 1000000; choose"),
    ("send s.toml --to 127.0.0.1 --deadline 1s --cost lo=much", "\"much\" is not a price; write PATH=0.1/GB"),
    ("send s.toml --to 127.0.0.1 --deadline 1s --cost lo", "it has no `=`; write PATH=0.1/GB"),
    ("send s.toml --to 127.0.0.1 --congestion reno", "invalid value 'reno' for '--congestion <CONGESTION>'"),
    ("send none.bin --to 127.0.0.1", "while opening none.bin: No such file"),
    ("send . --follow --to 127.0.0.1", "--follow with the folder .; name the files that grow"),
    ("send s.toml --idle 1s --to 127.0.0.1", "arguments were not provided: --follow"),
    (
        "send s.toml --follow --deadline 2040-01-01T00:00:00Z --to 127.0.0.1",
        "--follow needs one deadline for what is appended; give one time, such as 10s",
    ),
    ("send /dev/null --to 127.0.0.1", "while opening /dev/null: it is not a file; name files"),
    ("send s.toml ./s.toml --to 127.0.0.1", "two files are named s.toml, and one would replace the other; rename"),
    ("send s.toml --to 127.0.0.1:x", "while looking up 127.0.0.1:x: \"x\" is not a port; give --to a host"),
    (
        "send s.toml --to 127.0.0.1",
        "there is no --key; add --key (this sender's private key, made by `crosslane keygen`)",
    ),
    ("send s.toml --to 127.0.0.1 --key k", "there is no --receiver-key; add --receiver-key (the receiver's public key"),
    ("send s.toml --to 127.0.0.1 --receiver-key k", "'--receiver-key <KEY>': a key is 44 characters of base64"),
    (
        "send s.toml --to 127.0.0.1 --encryption none --key k",
        "'--encryption <none>' cannot be used with '--key <FILE>'",
    ),
    ("send s.toml --to 127.0.0.1 --encryption tls", "invalid value 'tls' for '--encryption <none>'"),
    ("receive --into .", "there is no --key; add --key (this receiver's private key, made by `crosslane keygen`), or"),
    ("receive --into . --key k", "there is no --sender-key; add --sender-key (the public key of a sender"),
    (
        "receive --into . --key none.key --sender-key hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
        "while reading the private key none.key: there is no such file; `crosslane keygen --out none.key` makes one",
    ),
    ("receive --into none", "while opening the folder none: No such file"),
    ("receive --into s.toml", "while opening the folder s.toml: it is not a folder; give --into"),
    ("receive --into . --listen nowhere", "invalid value 'nowhere' for '--listen <ADDRESS:PORT>'"),
    ("drive feup.toml --data .", "while importing ./word.csv, line 1: it has no column `senderId`"),
    ("import pam2025 --operator att none.csv", "while importing none.csv: No such file"),
    ("import pam2025 --operator att word.csv", "while importing word.csv, line 1: it has no column `TIME_STAMP_x`"),
    ("import pam2025 --operator att binary.csv", "while importing binary.csv: "),
    ("import pam2025 --operator att empty.csv", "while importing empty.csv: it is empty"),
    ("import pam2025 --operator tim word.csv", "invalid value 'tim' for '--operator <OPERATOR>'"),
    ("import imc23 --operator att word.csv", "while importing word.csv, line 1: it has no column `att_rtt_ms`"),
    ("import imc23 --operator orange word.csv", "invalid value 'orange' for '--operator <OPERATOR>'"),
    ("import pings --operator mine feup.csv", "while importing feup.csv, line 1: it has no column `t_s`"),
    ("import feup --ap ap9 feup.csv", "while importing feup.csv: it has no access point `ap9`; choose one of ap1"),
    ("import feup --ap ap1 feup.csv --from-s 9", "while importing feup.csv: it covers 0 to 1 s, not"),
    ("import feup --ap ap1 feup.csv --out ./feup.csv", "while writing ./feup.csv: it is the recording, which would be"),
    ("import feup --ap ap1 cell.csv", "while importing cell.csv, line 2: `far` in column `rssiMean` is not"),
];

const FEUP: &str = "senderId,receiverId,systime,receiverDist,isIperfOn,rssiMean,dataRateMean,nBytesReceived\n\
                    ap1,m1,101,9,1,-60.5,65,2500000\nap1,m1,102,9,1,-61,65,2500000\n";

/// A valid configuration of an agent.
const CONFIGURATION: &str = r#"[[path]]
name = "its-g5"
rat = "80211p"
[[path]]
name = "lte"
interface = "wwan0"
rat = "lte"
[service]
prefer = ["lte"]
[observe]
vanetza = "127.0.0.1:5051"
[strategy]
name = "threshold"
"#;
/// Faults in it: text that is replaced, its replacement, and the expected message.
const CONFIGURATIONS: &[(&str, &str, &str)] = &[
    ("interface", "iface", "line 6: unknown key `iface`"),
    ("name = \"lte\"", "name = \"a/b\"", "line 4: \"a/b\" is no name of a path; give `name` 1 to 64 bytes, without /"),
    ("name = \"lte\"", "name = \"its-g5\"", "line 4: path \"its-g5\" is defined twice"),
    ("[\"lte\"]", "[\"lte\", \"5g\"]", "line 9: `prefer` names \"5g\", which is no path; name paths of this file"),
    ("\"threshold\"", "\"treshold\"", "line 12: there is no strategy \"treshold\", only "),
    ("name = \"threshold\"", "", "line 12: the strategy has no `name`"),
    ("127.0.0.1:5051", "localhost", "line 11: `vanetza`: invalid socket address syntax; write it as 10."),
    ("rat = \"lte\"", "rat = \"lte\"\naddress = \"10.1\"", "line 8: `address`: invalid IP address syntax; write it"),
    ("wwan0", "wwan0-of-the-modem", "line 4: \"wwan0-of-the-modem\" is no interface name"),
    ("[observe]", "[observe]\ntransport_period_ms = 0", "line 11: transport_period_ms is 0; give 1 to 1000"),
    ("[service]", "[service]\nmode = \"both\"", "line 9: `mode`: unknown word `both`; choose from `aggregate`"),
    ("name = \"lte\"\n", "", "line 4: `name` is missing; add it (docs/reference/agent-config.md"),
    ("\"threshold\"", "\"deadline\"", "line 12: the strategy needs objects with deadlines"),
    ("\"threshold\"", "\"mp-dpa\"", "line 12: the strategy needs objects with deadlines"),
    ("127.0.0.1:5051", "0.0.0.0:5051", "line 11: `vanetza` is 0.0.0.0:5051, where the whole network can send; name"),
    ("vanetza =", "vanetza_users = [\"its\"]\n#", "line 11: `vanetza_users` without `vanetza`; set"),
    ("[strategy]", "[log]\nevents_max_mb = 0\n[strategy]", "line 13: events_max_mb is 0; give 1 to 10000"),
    ("prefer", "demands_group = \"its\"\nprefer", "line 9: `demands_group` without `demands`; set"),
    ("prefer", "demands = \"@\"\nprefer", "line 9: \"@\" is no name of a socket"),
    ("[observe]", "demands = \"@d\"\n[observe]\ntransport_period_ms = 5", "line 12: transport_period_ms is 5, too far"),
    ("rat = \"lte\"", "rat = \"lte\"\nkeepalive_s = 5", "line 8: `keepalive_s` without a tunnel to a gateway that is"),
    (
        "prefer",
        "cost_per_gb = { lte = 2, its-g5 = 1 }\nprefer",
        "line 10: \"lte\" is preferred to \"its-g5\" and costs",
    ),
    ("prefer", "cost_per_gb = { lte = -1, its-g5 = 2 }\nprefer", "line 9: -1 per GB is outside 0 to 1000000"),
    ("prefer", "cost_per_gb = { lte = 1 }\nprefer", "line 9: path \"its-g5\" has no price, but others have"),
    ("prefer", "demands = \"@d\"\ncost_per_gb = { lta = 1 }\nprefer", "line 10: `cost_per_gb` names \"lta\", which is"),
    ("prefer", "demands = \"@d\"\ncost_per_gb = { lte = nan, its-g5 = 1 }\nprefer", "line 10: NaN per GB is outside"),
    (
        "prefer = [\"lte\"]",
        "demands = \"@d\"\ncost_per_gb = { lte = 2, its-g5 = 1 }\nprefer = [\"lte\", \"its-g5\"]",
        "line 11: \"lte\" is preferred to \"its-g5\" and costs more",
    ),
    (
        "[strategy]",
        "[[class]]\nname = \"a\"\nmode = \"off\"\n[strategy]",
        "line 12: class \"a\" has no condition; give",
    ),
];

/// A working directory with the files of the cases and a valid scenario.
fn workdir() -> TempDir {
    let workdir = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(workdir.path().join(name), bytes).unwrap();
    FILES.iter().for_each(|(name, bytes)| write(name, bytes));
    write("s.toml", SCENARIO.as_bytes());
    write("data.toml", with("rate_mbit_s = 20", "trace = \"data:a.csv\"").as_bytes());
    write("feup.toml", with("rate_mbit_s = 20", "trace = \"data:word.csv#feup:ap1\"").as_bytes());
    write("feup.csv", FEUP.as_bytes());
    write("cell.csv", FEUP.replacen("-60.5", "far", 1).as_bytes());
    // A sparse file.
    fs::File::create(workdir.path().join("huge.toml")).unwrap().set_len((64 << 20) + 1).unwrap();
    workdir
}

fn with(from: &str, to: &str) -> String {
    assert!(SCENARIO.contains(from), "{from}");
    SCENARIO.replacen(from, to, 1)
}

fn contents(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_fault_in_a_scenario_is_reported_with_its_line_and_leaves_no_files() {
    let workdir = workdir();
    let mut complaints = Vec::new();
    for (from, to, expected) in SCENARIOS {
        fs::write(workdir.path().join("s.toml"), with(from, to)).unwrap();
        let before = contents(workdir.path());
        for arguments in [&["drive", "s.toml", "--out", "out"][..], &["check", "s.toml"]] {
            complaints.extend(complaint(&crosslane(workdir.path(), arguments), expected));
            assert_eq!(contents(workdir.path()), before, "{to}");
        }
    }
    assert_none(complaints);
}

#[test]
fn a_fault_on_the_command_line_is_reported_in_one_message_and_leaves_no_files() {
    let workdir = workdir();
    let before = contents(workdir.path());
    let mut complaints = Vec::new();
    for (call, expected) in CALLS {
        let mut arguments: Vec<&str> = call.split(' ').collect();
        if arguments[0] == "drive" {
            arguments.extend(["--out", "out"]);
        }
        complaints.extend(complaint(&crosslane(workdir.path(), &arguments), expected));
        assert_eq!(contents(workdir.path()), before, "{call}");
    }
    assert_none(complaints);
}

#[test]
fn a_fault_in_a_configuration_is_reported_with_its_line() {
    let workdir = workdir();
    let mut complaints = Vec::new();
    for (from, to, expected) in CONFIGURATIONS {
        assert!(CONFIGURATION.contains(from), "{from}");
        fs::write(workdir.path().join("agent.toml"), CONFIGURATION.replacen(from, to, 1)).unwrap();
        let expected = format!("while reading configuration agent.toml {expected}");
        for arguments in [&["agent", "--config", "agent.toml"][..], &["check", "agent.toml"]] {
            complaints.extend(complaint(&crosslane(workdir.path(), arguments), &expected));
        }
    }
    assert_none(complaints);
}

#[test]
fn valid_input_is_accepted() {
    let workdir = workdir();
    fs::write(workdir.path().join("agent.toml"), CONFIGURATION).unwrap();
    for file in ["s.toml", "agent.toml"] {
        let output = crosslane(workdir.path(), &["check", file]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }
    let output = crosslane(workdir.path(), &["check", "agent.toml"]);
    assert!(output.stdout.contains("a vehicle with 2 paths\n"), "{output:?}");
    assert!(output.stdout.contains("note: path \"lte\": there is no interface \"wwan0\" now"), "{output:?}");
    let output = crosslane(workdir.path(), &["check", "agent.toml", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&result["ok"], result["warnings"].as_array().is_some_and(|warnings| warnings.len() >= 2)),
        (&true.into(), true)
    );
    let output = crosslane(workdir.path(), &["--help"]);
    assert!(output.code == Some(0) && output.stdout.contains("Usage:"), "{output:?}");
}

#[test]
fn a_folder_that_cannot_be_created_is_reported() {
    if !can_drive() {
        return;
    }
    let workdir = workdir();
    for out in ["s.toml/out", "/proc/out"] {
        let output = crosslane(workdir.path(), &["drive", "s.toml", "--out", out]);
        assert_none(complaint(&output, &format!("while making {out}: ")).into_iter().collect());
    }
}

#[test]
fn a_full_disk_on_standard_output_is_reported_and_a_closed_pipe_is_not() {
    let workdir = workdir();
    for call in
        ["check s.toml", "check s.toml --json", "completion bash", "man", "--help", "simulate --help", "--version"]
    {
        let mut command = Command::new(CROSSLANE);
        command.args(call.split(' ')).current_dir(workdir.path()).stderr(Stdio::piped());
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = ProgramOutput::from(command.stdout(full).spawn().unwrap().wait_with_output().unwrap());
        assert!(output.sentence().contains(": No space left on device"), "{output:?}");
        assert_eq!(output.code, Some(1), "{call}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ProgramOutput::from(command.stdout(writer).spawn().unwrap().wait_with_output().unwrap());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{call}");
    }
}

/// Not testable on machines where every user may create TUN devices.
#[test]
fn missing_privileges_are_reported_and_no_files_are_left() {
    let is_public = fs::metadata("/dev/net/tun").is_ok_and(|tun| tun.permissions().mode() & 0o006 == 0o006);
    if is_public {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        not_run("changing to an unprivileged user needs root");
        return;
    }
    let workdir = workdir();
    fs::set_permissions(workdir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = workdir.path().join("crosslane");
    fs::copy(CROSSLANE, &program).unwrap();
    let before = contents(workdir.path());
    let mut command = Command::new(program);
    command.args(["drive", "s.toml", "--out", "out"]).current_dir(workdir.path()).uid(65534).gid(65534);
    // A process that another test begins in this moment has inherited the file while it was written.
    let output = loop {
        match command.output() {
            Err(cause) if cause.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => break ProgramOutput::from(output.unwrap()),
        }
    };
    assert_eq!(contents(workdir.path()), before);
    assert_none(complaint(&output, "").into_iter().collect());
    let sentence = output.sentence();
    assert!(sentence.contains("/dev/net/tun") || sentence.contains("user namespace"), "{sentence}");
}
