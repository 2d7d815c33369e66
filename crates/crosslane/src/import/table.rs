//! Reads CSV with a header by column name; every fault has its line.

use csv::{ErrorKind, Position, Reader, ReaderBuilder, StringRecord};

use super::fault::{CORRECT_THE_LINE, Fault, GIVE_A_RECORDING};

/// A recording's table, opened.
pub(super) struct Table<'a> {
    reader: Reader<&'a [u8]>,
    header: StringRecord,
    lines: Lines<'a>,
}

/// Counts lines. The reader's own count is one too low after CR LF and after
/// empty lines, which it skips only with the next read.
struct Lines<'a> {
    text: &'a [u8],
    counted: usize,
    line: u64,
}

/// A column of the table.
pub(super) struct Column {
    index: usize,
    pub name: String,
}

/// One line below the header.
pub(super) struct Row {
    pub line: u64,
    record: StringRecord,
}

/// Meaning and valid range of a number.
pub(super) struct Quantity {
    pub meaning: &'static str,
    pub min: f64,
    pub max: f64,
}

/// The bounds keep sums and conversions exact and detect swapped columns.
pub(super) const UNIX_TIME: Quantity = Quantity { meaning: "a Unix time in seconds", min: 0.0, max: 1e10 };
pub(super) const RATE: Quantity = Quantity { meaning: "a rate in Mbit/s", min: 0.0, max: 1e5 };
pub(super) const RSSI: Quantity = Quantity { meaning: "an RSSI in dBm", min: -150.0, max: 0.0 };
pub(super) const BYTES: Quantity = Quantity { meaning: "a number of bytes", min: 0.0, max: 1e11 };
pub(super) const FLAG: Quantity = Quantity { meaning: "a flag", min: 0.0, max: 1.0 };

/// Maximum number of characters shown of an invalid cell.
const SHOWN_CHARACTERS: usize = 40;

impl<'a> Table<'a> {
    pub fn open(text: &'a str) -> Result<Table<'a>, Fault> {
        if text.starts_with("version https://git-lfs") {
            let remedy = "run `git lfs pull` in the data set's repository";
            return Err(Fault::new("it is a Git LFS pointer, not the recording", remedy));
        }
        if text.contains('\0') {
            return Err(Fault::binary());
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = ReaderBuilder::new().from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| fault(&error).at(1))?.clone();
        if header.is_empty() {
            return Err(Fault::new("it is empty", GIVE_A_RECORDING));
        }
        Ok(Table { reader, header, lines: Lines { text: text.as_bytes(), counted: 0, line: 1 } })
    }

    /// The first of `names` that the header has.
    pub fn column(&self, names: &[&str]) -> Result<Column, Fault> {
        let found = names.iter().find_map(|name| Some((self.header.iter().position(|cell| cell == *name)?, name)));
        found
            .map(|(index, name)| Column { index, name: (*name).to_owned() })
            .ok_or_else(|| Fault::new(format!("it has no column `{}`", names.join("` or `")), GIVE_A_RECORDING).at(1))
    }

    pub fn rows(self) -> impl Iterator<Item = Result<Row, Fault>> + use<'a> {
        let mut lines = self.lines;
        self.reader.into_records().map(move |read| match read {
            Ok(record) => Ok(Row { line: lines.of(record.position()), record }),
            Err(error) => Err(fault(&error).at(lines.of(error.position()))),
        })
    }
}

impl Lines<'_> {
    /// The line of the first record that begins at `position` or after it;
    /// positions must not fall.
    fn of(&mut self, position: Option<&Position>) -> u64 {
        let begin = position.map_or(self.counted, |position| position.byte() as usize);
        let blank = self.text.iter().skip(begin).take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let passed = self.text.iter().take(begin + blank).skip(self.counted);
        self.line += passed.filter(|byte| **byte == b'\n').count() as u64;
        self.counted = begin + blank;
        self.line
    }
}

impl Row {
    /// The cell's text, which can be empty.
    pub fn text(&self, column: &Column) -> &str {
        self.record.get(column.index).unwrap_or_default().trim()
    }

    /// The number in the cell.
    pub fn number(&self, column: &Column, quantity: &Quantity) -> Result<f64, Fault> {
        let cell = self.text(column);
        // A comparison with NaN is false: it is in no range.
        let number = cell.parse::<f64>().ok().filter(|number| (quantity.min..=quantity.max).contains(number));
        number.ok_or_else(|| {
            let Quantity { meaning, min, max } = quantity;
            let cell: String = cell.chars().take(SHOWN_CHARACTERS).collect();
            let cause = format!("`{cell}` in column `{}` is not {meaning} from {min} to {max}", column.name);
            Fault::new(cause, CORRECT_THE_LINE).at(self.line)
        })
    }

    /// The Unix time in the cell, in ms.
    pub fn time_ms(&self, column: &Column) -> Result<i64, Fault> {
        Ok((self.number(column, &UNIX_TIME)? * 1000.0).round() as i64)
    }
}

fn fault(error: &csv::Error) -> Fault {
    match *error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Fault::new(format!("{len} columns where the header has {expected_len}"), CORRECT_THE_LINE)
        }
        _ => Fault::binary(),
    }
}
