//! Keys of one kind of traffic in the scenario's table `[traffic]`.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// The keys that are not read yet.
#[derive(Debug)]
pub struct Keys {
    kind: &'static str,
    table: Table,
}

/// What is wrong with a key, or with the kind if there is no key. The text after
/// `; ` is the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key.
    pub key: Option<String>,
    /// The error and the remedy.
    pub text: String,
}

impl Fault {
    fn at(key: &str, text: String) -> Fault {
        Fault { key: Some(key.into()), text }
    }
}

impl Keys {
    /// The keys of this kind.
    pub fn new(kind: &'static str, table: Table) -> Keys {
        Keys { kind, table }
    }

    /// The value of a key, if it is given.
    ///
    /// # Errors
    /// It has another type.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, Fault> {
        let value = self.table.remove(key).map(T::deserialize);
        value.transpose().map_err(|error| Fault::at(key, error.message().into()))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// It is missing or has another type.
    pub fn need<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, Fault> {
        let kind = self.kind;
        let remedy = "add it (docs/reference/scenario.md lists the keys)";
        let missing = || Fault { key: None, text: format!("traffic of kind `{kind}` needs `{key}`; {remedy}") };
        self.take(key)?.ok_or_else(missing)
    }

    /// A number above 0, up to `max`.
    ///
    /// # Errors
    /// It is missing or outside.
    pub fn above_zero(&mut self, key: &str, max: f64) -> Result<f64, Fault> {
        let value = self.need(key)?;
        if value > 0.0 && value <= max {
            return Ok(value);
        }
        Err(Fault::at(key, format!("{value} is not above 0 and up to {max}; choose a number in this range")))
    }

    /// A number within a range; `default` if it is not given.
    ///
    /// # Errors
    /// It is missing and has no default, or it is outside.
    pub fn within<T>(&mut self, key: &str, range: RangeInclusive<T>, default: Option<T>) -> Result<T, Fault>
    where
        T: DeserializeOwned + PartialOrd + Display,
    {
        let value = match default {
            Some(default) => self.take(key)?.unwrap_or(default),
            None => self.need(key)?,
        };
        if range.contains(&value) {
            return Ok(value);
        }
        let (min, max) = range.into_inner();
        Err(Fault::at(key, format!("{value} is outside {min} to {max}; choose a number in this range")))
    }

    /// A range `[min, max]` within bounds.
    ///
    /// # Errors
    /// It is missing, outside, or its minimum exceeds its maximum.
    pub fn range(&mut self, key: &str, [low, high]: [f64; 2]) -> Result<[f64; 2], Fault> {
        let [min, max] = self.need(key)?;
        if low <= min && min <= max && max <= high {
            return Ok([min, max]);
        }
        let text = format!("[{min}, {max}] is no range within {low} to {high}; give the minimum and the maximum");
        Err(Fault::at(key, text))
    }

    /// A key that was not read, if there is one.
    pub fn left(&self) -> Option<&str> {
        self.table.keys().next().map(String::as_str)
    }
}

/// The parameters of a kind by their keys.
pub(super) fn table(kind: &impl Serialize) -> Table {
    Table::try_from(kind).unwrap_or_default()
}
