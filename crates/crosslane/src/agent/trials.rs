//! The store of what trials showed, from which `crosslane refit` fits the tree again. It is bounded: a full file is
//! renamed to `NAME.1` and another one begun, so that the oldest rows go.

use std::fs::File;
use std::io;
use std::path::Path;

use crosslane_core::allocate::learned::trial::Trial;
use crosslane_core::time::Instant;

use super::config::Config;
use super::journal::file::Sink;
use crate::output;
use crate::trials;

/// Bytes of a file, of two: 4,000 to 9,000 rows, at least 80 hours of driving.
const MAX_BYTES: u64 = 2_000_000;

/// The store.
pub struct TrialStore {
    sink: Sink,
    name: String,
    strategy: &'static str,
    /// Number of the last row. The order of the rows is that of their numbers, whatever the clock says.
    number: u64,
    is_broken: bool,
}

impl TrialStore {
    /// The store that the configuration in this file names, if it names one.
    pub fn open(config: &Config, file: &Path) -> Option<TrialStore> {
        let refitting = config.strategy.as_ref()?.refitting()?;
        let store = file.parent().unwrap_or(Path::new("")).join(refitting.store_file);
        let (sink, name) = (Sink::file(&store, MAX_BYTES), store.display().to_string());
        let number = match trials::last_number(&store) {
            Ok(number) => number,
            Err(cause) => {
                output::message(format_args!("while reading trials {name}: {cause}; the agent continues without them"));
                return None;
            }
        };
        let mut opened = TrialStore { sink, name, strategy: refitting.strategy, number, is_broken: false };
        // The first trial may be hours away.
        if let Err(cause) = File::options().append(true).create(true).open(&store) {
            opened.report(&cause);
        }
        Some(opened)
    }

    /// Appends a row. A full disk costs rows, not connections: the failure is reported once until writing works again.
    pub fn write(&mut self, now: Instant, trial: &Trial) {
        let line = trials::line(self.number + 1, self.strategy, trial);
        match self.sink.write(now, &line) {
            Some(Ok(())) => {
                self.number += 1;
                if std::mem::take(&mut self.is_broken) {
                    output::message(format_args!("trials are written to {} again", self.name));
                }
            }
            Some(Err(cause)) => self.report(&cause),
            None => {}
        }
    }

    fn report(&mut self, cause: &io::Error) {
        if let Some(sentence) = self.failure(cause) {
            output::message(sentence);
        }
    }

    /// What is said of a failure, if it is the first one since writing worked.
    fn failure(&mut self, cause: &io::Error) -> Option<String> {
        let is_first = !std::mem::replace(&mut self.is_broken, true);
        is_first.then(|| format!("while writing trials to {}: {cause}; the agent continues without them", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::agent::config;
    use crate::durable_file::with_suffix;
    use crate::trials::tests::TRIAL;

    const CONFIGURATION: &str = "[[path]]\nname = \"lte\"\nrat = \"lte\"\n[strategy]\nname = \"learned\"\ntree = \"tree.json\"\nstore = \"store\"\n";
    const TREE: &str =
        r#"{"format": "crosslane-tree", "version": 1, "strategy": "learned", "nodes": [{"a_first": 0.5}]}"#;

    #[test]
    fn a_full_disk_costs_rows_and_is_reported_once_until_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        let at = |seconds: u64| Instant::from_millis(1000 * seconds);
        let full = Sink::file(Path::new("/dev/full"), MAX_BYTES);
        let mut store =
            TrialStore { sink: full, name: "store".into(), strategy: "learned", number: 7, is_broken: false };
        store.write(at(1), &TRIAL);
        assert_eq!((store.is_broken, store.number), (true, 7));
        assert_eq!(store.failure(&io::ErrorKind::StorageFull.into()), None, "it has been reported");
        store.sink = Sink::file(&file, MAX_BYTES);
        store.write(at(3), &TRIAL);
        assert_eq!((store.is_broken, store.number), (false, 8));
        assert_eq!(trials::read(&file, "learned").unwrap().rows[0].number, 8);
        let cause =
            File::options().write(true).open("/dev/full").and_then(|mut full| full.write_all(b"x")).unwrap_err();
        let sentence = store.failure(&cause).unwrap();
        assert!(sentence.starts_with("while writing trials to store: No space left on device"), "{sentence}");
        assert!(sentence.ends_with("; the agent continues without them"), "{sentence}");
    }

    #[test]
    fn a_store_of_any_size_or_type_neither_holds_up_the_agent_nor_takes_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        fs::write(&file, CONFIGURATION).unwrap();
        fs::write(folder.path().join("tree.json"), TREE).unwrap();
        let (config, store) = (config::read(&file).unwrap(), folder.path().join("store"));
        File::create(&store).unwrap().set_len(1 << 30).unwrap();
        assert!(TrialStore::open(&config, &file).is_none(), "it could not number the rows on");
        fs::remove_file(&store).unwrap();
        nix::unistd::mkfifo(&store, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(TrialStore::open(&config, &file).is_none());
    }

    #[test]
    fn rows_are_numbered_on_after_a_kill_within_a_line_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        fs::write(&file, CONFIGURATION).unwrap();
        fs::write(folder.path().join("tree.json"), TREE).unwrap();
        let (config, store) = (config::read(&file).unwrap(), folder.path().join("store"));
        let write = |count| {
            let mut open = TrialStore::open(&config, &file).unwrap();
            (0..count).for_each(|_| open.write(Instant::ZERO, &TRIAL));
        };
        write(2);
        let text = fs::read(&store).unwrap();
        fs::write(&store, &text[..text.len() - 40]).unwrap();
        write(2);
        let rows = trials::read(&store, "learned").unwrap();
        let numbers: Vec<u64> = rows.rows.iter().map(|row| row.number).collect();
        assert_eq!((numbers, rows.skipped), (vec![1, 2, 3], 1), "the second row is lost");
        write(20_000);
        let rows = trials::read(&store, "learned").unwrap();
        assert!((4_000..9_000).contains(&rows.rows.len()), "{}", rows.rows.len());
        assert_eq!(rows.rows.last().unwrap().number, 20_003);
        let size = |file: &Path| fs::metadata(file).unwrap().len();
        assert!(size(&store) + size(&with_suffix(&store, trials::OLDER_SUFFIX)) <= 2 * MAX_BYTES);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
