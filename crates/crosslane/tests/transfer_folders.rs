//! `crosslane send` of folders: what arrives where, and names that would lead out of the receiver's folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::scope;

use crate::program::{ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane_core::transfer::multipath::frame::{self, Greeting};
use serde_json::Value;
use tempfile::TempDir;

fn send(workdir: &Path, to: &str, files: &[&str]) -> ProgramOutput {
    crosslane(workdir, &[&["send", "--encryption", "none", "--json", "--to", to], files].concat())
}

/// The outcome of each file, by name.
fn outcomes(output: &ProgramOutput) -> BTreeMap<String, String> {
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let files = document["files"].as_array().unwrap().iter();
    files.map(|file| (text(&file["name"]), text(&file["outcome"]))).collect()
}

/// A folder `drive` with some files.
fn workdir() -> TempDir {
    let workdir = TempDir::new().unwrap();
    let root = workdir.path().join("drive");
    fs::create_dir_all(root.join("lidar/front")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (name, size) in [("notes", 10), ("lidar/a", 2_000_000), ("lidar/front/a", 3_000_000), ("lidar/front/ü b", 0)] {
        fs::write(root.join(name), vec![name.len() as u8; size]).unwrap();
    }
    symlink("/etc/passwd", root.join("link")).unwrap();
    workdir
}

#[test]
fn a_folder_arrives_with_all_files_in_it() {
    let workdir = workdir();
    let receiver = Receiver::start(workdir.path());
    let output = send(workdir.path(), &receiver.address, &["drive"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stderr.lines().next().unwrap(), "crosslane: drive/link is left out, since it is a symbolic link");
    let names = ["drive/lidar/a", "drive/lidar/front/a", "drive/lidar/front/ü b", "drive/notes"];
    assert_eq!(outcomes(&output).into_keys().collect::<Vec<_>>(), names);
    for name in names {
        assert!(
            fs::read(workdir.path().join("in").join(name)).unwrap() == fs::read(workdir.path().join(name)).unwrap()
        );
    }
    assert_eq!(fs::read_dir(workdir.path().join("in/drive")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(workdir.path().join("in/drive/lidar/front")).unwrap().count(), 2, "no part is left");
    assert_eq!(receiver.end().lines().count(), 1, "no fault was reported");
}

#[test]
fn folders_of_several_senders_go_beside_one_another() {
    let workdir = workdir();
    let receiver = Receiver::start(workdir.path());
    let folders: Vec<String> = (0..6).map(|number| format!("{number}/drive")).collect();
    for (number, folder) in folders.iter().enumerate() {
        fs::create_dir_all(workdir.path().join(folder)).unwrap();
        for file in 0..5 {
            let path = workdir.path().join(folder).join(format!("{number}-{file}"));
            fs::write(path, vec![number as u8; 400_000]).unwrap();
        }
    }
    scope(|scope| {
        for folder in &folders {
            let (address, workdir) = (&receiver.address, workdir.path());
            scope.spawn(move || {
                let output = send(workdir, address, &[folder.as_str()]);
                assert_eq!(output.code, Some(0), "{output:?}");
            });
        }
    });
    let files: Vec<_> = fs::read_dir(workdir.path().join("in/drive")).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 30);
    for file in files {
        let number = file.file_name().into_string().unwrap().as_bytes()[0] - b'0';
        assert!(fs::read(file.path()).unwrap() == [number; 400_000]);
    }
}

/// Whoever placed it there, a transfer does not follow it.
#[test]
fn a_symbolic_link_in_the_receivers_folder_leads_nowhere() {
    let workdir = workdir();
    let receiver = Receiver::start(workdir.path());
    let outside = TempDir::new().unwrap();
    fs::create_dir(workdir.path().join("in/drive")).unwrap();
    symlink(outside.path(), workdir.path().join("in/drive/lidar")).unwrap();
    fs::write(outside.path().join("target"), "untouched").unwrap();
    // The link itself is replaced, and not what it leads to.
    symlink(outside.path().join("target"), workdir.path().join("in/drive/notes")).unwrap();
    symlink(outside.path().join("target"), workdir.path().join("in/drive/notes.part")).unwrap();
    let output = send(workdir.path(), &receiver.address, &["drive"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let reason = "in/drive/lidar is a file or a symbolic link; move it away at the receiver and send it again";
    assert!(output.stdout.contains(reason), "{output:?}");
    assert_eq!(outcomes(&output)["drive/notes"], "stored", "{output:?}");
    assert_eq!(outcomes(&output).values().filter(|outcome| *outcome == "refused").count(), 3);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read(outside.path().join("target")).unwrap(), b"untouched");
    assert!(fs::symlink_metadata(workdir.path().join("in/drive/notes")).unwrap().is_file());
}

#[test]
fn a_file_in_the_place_of_a_folder_is_named() {
    let workdir = workdir();
    let receiver = Receiver::start(workdir.path());
    fs::write(workdir.path().join("in/drive"), "a file").unwrap();
    let output = send(workdir.path(), &receiver.address, &["drive"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stdout.contains("in/drive is a file or a symbolic link; move it away at the receiver"),
        "{output:?}"
    );
    assert_eq!(fs::read(workdir.path().join("in/drive")).unwrap(), b"a file");
    // The other way round.
    fs::remove_file(workdir.path().join("in/drive")).unwrap();
    fs::create_dir_all(workdir.path().join("in/notes")).unwrap();
    let output = send(workdir.path(), &receiver.address, &["drive/notes"]);
    assert!(output.stdout.contains("since a folder has its name there"), "{output:?}");
}

/// A sender of our own refuses to send them; another program may not.
#[test]
fn names_that_lead_out_of_the_folder_end_the_connection() {
    let workdir = workdir();
    let receiver = Receiver::start(workdir.path());
    let outside = workdir.path().join("outside");
    for name in ["../outside", "a/../../outside", outside.to_str().unwrap(), "./../outside", "in/../../outside"] {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        let mut wire = Greeting { transfer: [name.len() as u8; 16], path: 0 }.emit().to_vec();
        frame::offer(&mut wire, 0, 3, 0, 0, name);
        frame::piece(&mut wire, 0, 0, 3);
        wire.extend(b"bad");
        stream.write_all(&wire).unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
        assert!(!outside.exists(), "{name}");
    }
    receiver.await_message("an object whose name is not a safe file name at byte 25 of the stream");
    assert_eq!(fs::read_dir(workdir.path().join("in")).unwrap().count(), 0);
}
