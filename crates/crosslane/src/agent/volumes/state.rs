//! The file in which the volumes are kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::meter::Kept;
use crate::durable_file::{replace, with_suffix};
use crate::text_file::open_regular;

/// Version of the file.
const VERSION: u32 = 1;
/// How the file begins.
const BEGIN: &[u8] = b"{\"version\":";
/// Maximum length of the file.
const MAX_BYTES: u64 = 1 << 20;

/// The file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// The boot of the machine to which the counters belong.
    pub boot_id: String,
    /// Each path by its name.
    pub paths: BTreeMap<String, Kept>,
}

impl State {
    pub fn new(boot_id: String) -> State {
        State { version: VERSION, boot_id, paths: BTreeMap::new() }
    }

    /// Continues in this boot of the machine.
    fn in_boot(mut self, boot_id: &str) -> State {
        if self.boot_id != boot_id {
            self.paths.values_mut().for_each(Kept::after_boot);
            self.boot_id = boot_id.into();
        }
        self
    }
}

/// Why there is no state.
#[derive(Debug)]
pub enum Lack {
    /// It has not been written yet.
    Absent,
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is damaged, or of another version.
    Damaged(String),
    /// It is another program's, or a user's.
    Foreign,
}

/// Reads the state for this boot of the machine.
///
/// # Errors
/// Why there is none.
pub fn read(file: &Path, boot_id: &str) -> Result<State, Lack> {
    let mut text = Vec::new();
    let read = open_regular(file).and_then(|opened| opened.take(MAX_BYTES).read_to_end(&mut text));
    read.map_err(|cause| if cause.kind() == ErrorKind::NotFound { Lack::Absent } else { Lack::Unreadable(cause) })?;
    let state: State = serde_json::from_slice(&text).map_err(|cause| match may_be_damaged(&text) {
        true => Lack::Damaged(format!("it is damaged ({cause})")),
        false => Lack::Foreign,
    })?;
    match state.version {
        VERSION => Ok(state.in_boot(boot_id)),
        other => Err(Lack::Damaged(format!("it has version {other}, where this program has version {VERSION}"))),
    }
}

/// Whether a text may be what is left of a state: cut off, followed by something else, or zeroed by a file system.
fn may_be_damaged(text: &[u8]) -> bool {
    text.starts_with(BEGIN) || BEGIN.starts_with(text) || text.iter().all(|byte| *byte == 0)
}

/// Gives a damaged state another name; returns the new one.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let aside = with_suffix(file, ".damaged");
    fs::rename(file, &aside)?;
    Ok(aside)
}

/// Writes the state; the folder is created if need be.
///
/// # Errors
/// It cannot be written; the former state remains.
pub fn write(file: &Path, state: &State) -> io::Result<()> {
    let contents = serde_json::to_vec(state)?;
    match replace(file, &contents) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
            replace(file, &contents)
        }
        written => written,
    }
}

/// Identifies this boot of the machine; empty if the kernel does not say.
pub fn boot_id() -> String {
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    read.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_its_folder_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/volumes.json");
        assert!(matches!(read(&file, "a"), Err(Lack::Absent)));
        let mut state = State::new("a".into());
        state.paths.insert("lte".into(), Kept { reset_day: 7, ..Kept::default() });
        for _ in 0..2 {
            write(&file, &state).unwrap();
            assert_eq!(read(&file, "a").unwrap(), state);
        }
        assert!(matches!(read(Path::new("/dev/null"), "a"), Err(Lack::Unreadable(_))), "it is not replaced");
        let names: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(names, ["volumes.json"]);
        assert_ne!(read(&file, "b").unwrap().paths, state.paths, "another boot");
    }

    #[test]
    fn what_is_no_state_any_more_is_named_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("volumes.json");
        let whole = serde_json::to_string(&State::new("a".into())).unwrap();
        let newer = whole.replacen("\"version\":1", "\"version\":2", 1);
        for (text, expected) in [
            ("", "damaged"),
            (&whole[..whole.len() / 2], "damaged"),
            ("{\"version\": 1}", "damaged"),
            ("\0\0\0", "damaged"),
            (newer.as_str(), "it has version 2"),
        ] {
            fs::write(&file, text).unwrap();
            let Err(Lack::Damaged(cause)) = read(&file, "a") else { panic!("{text}") };
            assert!(cause.contains(expected), "{cause}");
            let aside = set_aside(&file).unwrap();
            assert_eq!((fs::read_to_string(aside).unwrap(), file.exists()), (text.to_owned(), false));
        }
        assert!(matches!(read(folder.path(), "a"), Err(Lack::Unreadable(_))));
        for foreign in ["[[path]]\nname = \"lte\"\n", "{\"name\": \"lte\"}", "[]", "notes"] {
            fs::write(&file, foreign).unwrap();
            assert!(matches!(read(&file, "a"), Err(Lack::Foreign)), "{foreign}");
        }
    }
}
