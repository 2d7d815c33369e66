//! CSV of traces and mobility files. All cells are numbers, so there are no
//! quotes; `#` begins a comment line; a blank cell is `None`.

use crate::error::ScenarioError;

/// A column that a file may have.
pub(crate) struct Column {
    /// Name in the header.
    pub name: &'static str,
    /// Minimum and maximum value.
    pub range: [f64; 2],
    /// True if the header must have it, and every row a value.
    pub required: bool,
}

/// A row, with its line in the file.
pub(crate) struct Row<const N: usize> {
    pub line: usize,
    /// In the order of the requested columns.
    pub cells: [Option<f64>; N],
}

/// Passes the rows of a file to `take` one by one, at most `max_rows` of them.
pub(crate) fn each<const N: usize>(
    text: &str,
    file: &str,
    columns: &[Column; N],
    max_rows: usize,
    mut take: impl FnMut(Row<N>) -> Result<(), ScenarioError>,
) -> Result<(), ScenarioError> {
    let mut lines = text
        .lines()
        .zip(1..)
        .map(|(text, line)| (text.trim(), line))
        .filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
    let empty = || fault(file, 1, "the file is empty", "give a header and rows");
    let (header, line) = lines.next().ok_or_else(empty)?;
    let places = places(header, columns).map_err(|what| {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        fault(file, line, what, format!("the columns are {}", names.join(",")))
    })?;
    let mut count = 0;
    for (text, line) in lines {
        let cells =
            cells(text, &places, columns).map_err(|what| fault(file, line, what, "correct the row or leave it out"))?;
        if count == max_rows {
            return Err(fault(file, line, format!("more than {max_rows} rows"), "split the file"));
        }
        count += 1;
        take(Row { line, cells })?;
    }
    if count == 0 {
        return Err(fault(file, line, "there is no row after the header", "add at least one"));
    }
    Ok(())
}

/// An error in a file that the scenario names.
pub(crate) fn fault(file: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> ScenarioError {
    ScenarioError { file: file.into(), line: Some(line), what: what.into(), remedy: remedy.into() }
}

/// For each position in the header, the index of the requested column.
fn places<const N: usize>(header: &str, columns: &[Column; N]) -> Result<Vec<usize>, String> {
    let mut places = Vec::new();
    for name in header.split(',').map(str::trim) {
        let found = columns.iter().position(|column| column.name == name);
        let place = found.ok_or_else(|| format!("unknown column `{name}`"))?;
        if places.contains(&place) {
            return Err(format!("column `{name}` is repeated"));
        }
        places.push(place);
    }
    let missing = columns.iter().enumerate().find(|(place, column)| column.required && !places.contains(place));
    missing.map_or(Ok(places), |(_, column)| Err(format!("column `{}` is missing", column.name)))
}

fn cells<const N: usize>(text: &str, places: &[usize], columns: &[Column; N]) -> Result<[Option<f64>; N], String> {
    let mut row = [None; N];
    for (cell, &place) in text.split(',').map(str::trim).zip(places) {
        let Column { name, range: [low, high], required } = columns[place];
        if cell.is_empty() && !required {
            continue;
        }
        if cell.is_empty() {
            return Err(format!("`{name}` is blank"));
        }
        let value: f64 = cell.parse().map_err(|_| format!("`{cell}` is not a number for `{name}`"))?;
        if !(low..=high).contains(&value) {
            return Err(format!("`{name}` is {value}, outside {low} to {high}"));
        }
        row[place] = Some(value);
    }
    let found = text.split(',').count();
    if found != places.len() {
        return Err(format!("{found} cells under {} columns", places.len()));
    }
    Ok(row)
}
