//! The volumes with a real file, and counters of the test.

use std::fs;
use std::path::Path;

use super::*;
use crate::agent::config::from_table;

fn config(file: &Path) -> Config {
    let text = format!(
        "[[path]]\nname = \"wlan\"\nrat = \"other\"\n[[path]]\nname = \"lte\"\nrat = \"lte\"\n\
         [path.volume]\nday_mb = 10\n[service]\nvolume_file = {file:?}\n[strategy]\nname = \"threshold\"\n"
    );
    from_table("a test", &text.parse().unwrap()).unwrap()
}

fn open(file: &Path) -> (Volumes, Option<String>) {
    let mut volumes = Volumes::new(&config(file)).unwrap();
    let note = volumes.load().unwrap();
    (volumes, note)
}

const LTE: PathId = PathId(1);

/// Levels that change when the interface's counter is this.
fn check(volumes: &mut Volumes, ms: u64, counter: u64) -> Vec<(Volume, String)> {
    let reading = |path| (path == LTE).then_some(Reading { if_index: 7, bytes: counter });
    let inputs = volumes.check(Instant::ZERO + Duration::from_millis(ms), local_date(), reading);
    let level = |input| match input {
        Input::Volume(LTE, level, reason) => (level, reason.text()),
        other => panic!("{other:?}"),
    };
    inputs.into_iter().map(level).collect()
}

/// Writes the state as the agent does.
fn write(volumes: &mut Volumes) -> Result<()> {
    volumes.write(Instant::ZERO)?;
    loop {
        if let Some(written) = volumes.written() {
            return written;
        }
        std::thread::yield_now();
    }
}

fn used(volumes: &Volumes) -> u64 {
    volumes.report(LTE).unwrap().periods[0].used_bytes
}

#[test]
fn a_volume_goes_on_where_the_last_agent_was_killed_or_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("volumes.json");
    let (mut volumes, note) = open(&file);
    assert!(note.is_none() && volumes.report(PathId(0)).is_none());
    assert_eq!(check(&mut volumes, 0, 50_000_000), []);
    let [(Volume::Scarce, text)] = &check(&mut volumes, 50, 59_000_000)[..] else { panic!() };
    assert!(text.starts_with("lte has used 9.0 MB of 10.0 MB this day: it carries until 2"), "{text}");
    assert!(text.ends_with("only while no other path is good"), "{text}");
    assert!(volumes.is_due(volumes.next_wakeup()));
    write(&mut volumes).unwrap();
    drop(volumes);
    let (mut killed, note) = open(&file);
    assert!(note.is_none() && used_up(&config(&file)).is_empty());
    assert_eq!(check(&mut killed, 0, 60_000_000)[0].0, Volume::Exhausted);
    assert_eq!(used(&killed), 10_000_000);
    killed.finish().unwrap();
    let notes = used_up(&config(&file));
    assert!(notes.len() == 1 && notes[0].starts_with("path \"lte\": it has used 10.0 MB of 10.0 MB this day: it "));
    let (mut ended, _) = open(&file);
    assert_eq!(check(&mut ended, 0, 60_000_001)[0].0, Volume::Exhausted, "also if it was reported before");
    assert_eq!((used(&ended), ended.report(LTE).unwrap().level.as_str()), (10_000_001, "exhausted"));
}

#[test]
fn what_is_kept_of_a_path_without_a_volume_stays_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("volumes.json");
    let (mut volumes, _) = open(&file);
    check(&mut volumes, 0, 0);
    check(&mut volumes, 50, 5);
    write(&mut volumes).unwrap();
    let renamed = fs::read_to_string(&file).unwrap().replace("\"lte\"", "\"nr\"");
    fs::write(&file, renamed).unwrap();
    let (volumes, _) = open(&file);
    volumes.finish().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"lte\"") && text.contains("\"nr\""), "{text}");
}

#[test]
fn a_damaged_file_is_kept_aside_and_a_file_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("volumes.json");
    fs::write(&file, "{").unwrap();
    let (mut volumes, note) = open(&file);
    let note = note.unwrap();
    let expected = format!("while reading data volumes from {}: it is damaged (", file.display());
    assert!(note.starts_with(&expected) && note.ends_with("damaged now, and counting begins at zero"), "{note}");
    assert_eq!(fs::read_to_string(folder.path().join("volumes.json.damaged")).unwrap(), "{");
    fs::create_dir(&file).unwrap();
    let fault = write(&mut volumes).unwrap_err().to_string();
    assert!(
        fault.starts_with("while writing data volumes to ") && fault.contains("; set service.volume_file"),
        "{fault}"
    );
    assert_eq!(check(&mut volumes, 0, 0), []);
    assert_eq!(check(&mut volumes, 50, 10_000_000).len(), 1, "counting goes on");
    assert!(!volumes.is_due(volumes.next_wakeup()), "it is tried again when it is time");
    fs::remove_dir(&file).unwrap();
    write(&mut volumes).unwrap();
    let (_, note) = open(&file);
    assert_eq!(note, None);
}

#[test]
fn a_file_of_another_program_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, "[[path]]\n").unwrap();
    let mut volumes = Volumes::new(&config(&file)).unwrap();
    let fault = volumes.load().unwrap_err().to_string();
    assert!(fault.contains(": it is another program's file, or a user's; set service.volume_file to"), "{fault}");
    assert_eq!(check(&mut volumes, 0, 0), []);
    assert_eq!(check(&mut volumes, 50, 10_000_000).len(), 1, "counting begins at zero");
    volumes.finish().unwrap_err();
    assert_eq!(fs::read_to_string(&file).unwrap(), "[[path]]\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_cannot_be_read_is_kept_and_continued_with_what_was_counted_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let [file, hidden] = ["volumes.json", "hidden"].map(|name| folder.path().join(name));
    let (mut volumes, _) = open(&file);
    check(&mut volumes, 0, 0);
    check(&mut volumes, 50, 9_000_000);
    write(&mut volumes).unwrap();
    fs::rename(&file, &hidden).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let mut volumes = Volumes::new(&config(&file)).unwrap();
    let fault = volumes.load().unwrap_err().to_string();
    assert!(fault.starts_with("while reading data volumes from ") && fault.contains("symbolic links"), "{fault}");
    assert_eq!(check(&mut volumes, 0, 9_000_000), [], "counting begins at zero");
    assert_eq!(check(&mut volumes, 50, 9_500_000), []);
    assert!(!volumes.is_due(volumes.next_wakeup()), "it is tried again when it is time");
    volumes.load().unwrap_err();
    fs::remove_file(&file).unwrap();
    fs::rename(&hidden, &file).unwrap();
    assert_eq!(volumes.load().unwrap(), None);
    assert_eq!(check(&mut volumes, 100, 9_600_000)[0].0, Volume::Scarce);
    write(&mut volumes).unwrap();
    assert_eq!(used(&open(&file).0), 9_600_000);
    fs::rename(&file, &hidden).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    Volumes::new(&config(&file)).unwrap().finish().unwrap_err();
    assert!(file.is_symlink(), "the file is kept at the end too");
}
