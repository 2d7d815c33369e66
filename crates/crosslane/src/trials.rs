//! What trials of another order of two paths showed: the rows from which `crosslane refit` fits a tree again, one JSON
//! object a line (`docs/reference/records.md`).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use crosslane_core::allocate::learned::features::{COUNT, QUANTITIES, Values};
use crosslane_core::allocate::learned::trial::Trial;
use crosslane_core::path::PathId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::durable_file::with_suffix;
use crate::text_file;

/// Version of the rows.
const VERSION: u32 = 1;
/// Suffix of the file with the older rows.
pub const OLDER_SUFFIX: &str = ".1";

/// A line of a store.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    number: u64,
    strategy: String,
    #[serde(flatten)]
    shown: Shown,
}

/// What a trial showed, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Shown {
    a: BTreeMap<String, f32>,
    b: BTreeMap<String, f32>,
    was_a_first: bool,
    is_a_preferred: bool,
    goodput_mbit_s: [f32; 2],
    /// Null: nothing was delivered.
    delay_ms: [Option<f32>; 2],
}

/// A row of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Counts the rows since the first one, from 1.
    pub number: u64,
    /// What the trial showed; the ids of its paths are not kept.
    pub trial: Trial,
}

/// The rows of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Those of the strategy, the oldest first.
    pub rows: Vec<Row>,
    /// Lines that are cut or no rows.
    pub skipped: usize,
    /// Rows of another strategy.
    pub others: usize,
    /// Version of rows that this program does not know, if there are any.
    pub other_version: Option<u64>,
}

/// The fields of an event; `names` are those of the paths.
pub fn fields(trial: &Trial, names: [&str; 2]) -> Value {
    // By way of the text, which has as few digits as 32 bits need.
    let text = serde_json::to_string(&Shown::from(trial)).unwrap_or_default();
    let mut fields: Value = serde_json::from_str(&text).unwrap_or_default();
    fields["paths"] = json!(names);
    fields
}

/// The line of a row, without its end.
pub fn line(number: u64, strategy: &str, trial: &Trial) -> String {
    let line = Line { version: VERSION, number, strategy: strategy.into(), shown: trial.into() };
    serde_json::to_string(&line).unwrap_or_default()
}

/// Reads a store, in whichever order its files are: rows are sorted by their numbers.
///
/// # Errors
/// A file of it cannot be read; one that does not exist has no rows.
pub fn read(file: &Path, strategy: &str) -> io::Result<Rows> {
    let mut rows = Rows::default();
    for file in [with_suffix(file, OLDER_SUFFIX), file.into()] {
        for line in lines(&file)?.lines().filter(|line| !line.is_empty()) {
            rows.add(line, strategy);
        }
    }
    rows.rows.sort_by_key(|row| row.number);
    rows.rows.dedup_by_key(|row| row.number);
    Ok(rows)
}

/// The number of the last row of a store, of whichever strategy and version; 0: it has none.
///
/// # Errors
/// As of [`read`].
pub fn last_number(file: &Path) -> io::Result<u64> {
    let number = |line: &str| serde_json::from_str::<Value>(line).ok()?["number"].as_u64();
    let of = |file: &Path| Ok::<_, io::Error>(lines(file)?.lines().filter_map(number).max());
    Ok(of(file)?.max(of(&with_suffix(file, OLDER_SUFFIX))?).unwrap_or_default())
}

/// A line that was cut may end within a character.
fn lines(file: &Path) -> io::Result<String> {
    match text_file::bytes_of_regular(file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(cause) => Err(cause),
    }
}

impl Rows {
    fn add(&mut self, line: &str, strategy: &str) {
        let value = serde_json::from_str(line).unwrap_or(Value::Null);
        if let Some(version) = value["version"].as_u64().filter(|version| *version != u64::from(VERSION)) {
            self.other_version = Some(version);
            return;
        }
        let line: Option<Line> = serde_json::from_value(value).ok();
        match line.and_then(|line| Some((line.shown.trial()?, line))) {
            Some((trial, line)) if line.strategy == strategy => self.rows.push(Row { number: line.number, trial }),
            Some(_) => self.others += 1,
            None => self.skipped += 1,
        }
    }
}

impl From<&Trial> for Shown {
    fn from(trial: &Trial) -> Shown {
        let of = |values: &Values| {
            let known = QUANTITIES.iter().zip(values).filter(|(_, value)| !value.is_nan());
            known.map(|(quantity, value)| (quantity.name.to_owned(), *value)).collect()
        };
        Shown {
            a: of(&trial.values[0]),
            b: of(&trial.values[1]),
            was_a_first: trial.was_a_first,
            is_a_preferred: trial.is_a_preferred,
            goodput_mbit_s: trial.goodput_mbit_s,
            delay_ms: trial.delay_ms.map(|ms| Some(ms).filter(|ms| !ms.is_nan())),
        }
    }
}

impl Shown {
    /// The trial; none if a value is impossible or of a quantity that is not known.
    fn trial(&self) -> Option<Trial> {
        let is_possible = |value: f32| value.is_finite() && value >= 0.0;
        let delay_ms = self.delay_ms.map(|ms| ms.unwrap_or(f32::NAN));
        let mut figures = self.goodput_mbit_s.into_iter().chain(self.delay_ms.into_iter().flatten());
        figures.all(is_possible).then_some(())?;
        Some(Trial {
            paths: [PathId(0), PathId(1)],
            values: [values(&self.a)?, values(&self.b)?],
            was_a_first: self.was_a_first,
            is_a_preferred: self.is_a_preferred,
            goodput_mbit_s: self.goodput_mbit_s,
            delay_ms,
        })
    }
}

fn values(named: &BTreeMap<String, f32>) -> Option<Values> {
    let mut values = [f32::NAN; COUNT];
    for (name, value) in named {
        let place = QUANTITIES.iter().position(|quantity| quantity.name == name)?;
        values[place] = Some(QUANTITIES[place].possible(*value)).filter(|value| !value.is_nan())?;
    }
    Some(values)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) const TRIAL: Trial = Trial {
        paths: [PathId(0), PathId(1)],
        values: [
            [-61.5, 12.0, f32::NAN, f32::NAN, f32::NAN, 23.4, 40.0, 0.0, 12.3],
            [-95.0, 3.1, -11.0, f32::NAN, f32::NAN, 61.0, 12.0, 0.01, 0.7],
        ],
        was_a_first: true,
        is_a_preferred: false,
        goodput_mbit_s: [13.0, 9.1],
        delay_ms: [31.0, 55.5],
    };

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        assert_eq!((read(&file, "learned").unwrap(), last_number(&file).unwrap()), (Rows::default(), 0));
        let text: String = (1..=3).map(|number| line(number, "learned", &TRIAL) + "\n").collect();
        assert!(text.len() < 3 * 500, "{text}");
        fs::write(&file, text).unwrap();
        let rows = read(&file, "learned").unwrap();
        assert_eq!((rows.rows.len(), rows.skipped, last_number(&file).unwrap()), (3, 0, 3));
        let known = |trial: &Trial| format!("{trial:?}");
        assert_eq!(known(&rows.rows[0].trial), known(&TRIAL));
        let nothing = Trial { goodput_mbit_s: [5.0, 0.0], delay_ms: [20.0, f32::NAN], ..TRIAL };
        fs::write(&file, line(7, "learned", &nothing)).unwrap();
        assert_eq!(known(&read(&file, "learned").unwrap().rows[0].trial), known(&nothing));
    }

    #[test]
    fn lines_that_are_cut_or_impossible_are_skipped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        let whole = line(1, "learned", &TRIAL);
        let bad = [
            whole[..60].to_owned(),
            "not JSON".into(),
            whole.replace("-61.5", "5"),
            whole.replace("23.4", "-1"),
            whole.replace("\"signal_dbm\"", "\"signal\""),
            whole.replace("[13.0,9.1]", "[13.0,-9.1]"),
            whole.replace("\"number\":1", "\"number\":-1"),
            whole.replace("\"b\":", "\"c\":"),
        ];
        let (others, next) = (line(2, "smartps", &TRIAL), line(3, "learned", &TRIAL));
        fs::write(with_suffix(&file, OLDER_SUFFIX), format!("{whole}\n{others}\n\n")).unwrap();
        fs::write(&file, [bad.join("\n").as_bytes(), b"\n\xff\xc3\n", next.as_bytes(), b"\n"].concat()).unwrap();
        let rows = read(&file, "learned").unwrap();
        assert_eq!(rows.rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((rows.skipped, rows.others, rows.other_version), (bad.len() + 1, 1, None));
        fs::write(&file, whole.replace("\"version\":1", "\"version\":2")).unwrap();
        assert_eq!(read(&file, "learned").unwrap().other_version, Some(2));
    }
}
