//! Parameters of a strategy: name, type, default, unit, range and meaning, declared once.
//!
//! [`parameters!`](crate::parameters!) makes a struct of the declaration, which
//! describes itself for the catalogue and reads itself from a table with all its checks.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;
use thiserror::Error;

/// A value as a configuration has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word or a name.
    Text(String),
    /// Several numbers.
    Numbers(Vec<f64>),
    /// Values by name.
    Table(Table),
    /// Anything else, which no parameter accepts.
    Other,
}

/// Values by name.
pub type Table = BTreeMap<String, Value>;
/// Descriptions of parameters.
pub type List = Vec<Parameter>;
/// The smallest and the greatest value.
pub type Range = [f64; 2];
/// The range of a parameter that has none.
pub const NO_RANGE: Option<Range> = None;
/// Any number.
const ANY: Range = [f64::NEG_INFINITY, f64::INFINITY];

/// Description of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name, after the groups it is in: `signal.hysteresis_db`.
    pub name: String,
    /// Its unit; empty for words and ratios.
    pub unit: &'static str,
    /// The smallest and the greatest value of a number.
    pub range: Option<Range>,
    /// The values of a word.
    pub choices: Vec<&'static str>,
    /// Its default; `None`: unset.
    pub default: Option<Value>,
    /// What it is.
    pub meaning: &'static str,
}

/// A parameter that does not exist, or an invalid value of one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{key}`: {what}; {remedy}")]
pub struct ParameterError {
    /// The parameter's name, after the groups it is in.
    pub key: String,
    /// The error.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl ParameterError {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> ParameterError {
        ParameterError { key: String::new(), what: what.into(), remedy: remedy.into() }
    }

    fn within(mut self, group: &str) -> ParameterError {
        self.key = joined(group, &self.key);
        self
    }
}

/// The description of all parameters of `P`.
pub fn list<P: Field + Default>() -> List {
    let mut list = List::new();
    P::default().describe(Parameter::default(), &mut list);
    list
}

/// Reads `P`; what the table lacks has its default.
///
/// # Errors
/// The first parameter that `P` does not have, or whose value is invalid.
pub fn read<P: Field>(table: Table) -> Result<P, ParameterError> {
    P::read(Value::Table(table), ANY)
}

/// The type of a parameter, or a group of parameters.
pub trait Field: Sized {
    /// Adds its description, with `self` as the default.
    fn describe(&self, parameter: Parameter, list: &mut List);

    /// Reads it from a value.
    ///
    /// # Errors
    /// The value is of another type, or out of range.
    fn read(value: Value, range: Range) -> Result<Self, ParameterError>;
}

/// A parameter whose values are words.
pub trait Choice: Copy + PartialEq + 'static {
    /// All values, with their words.
    fn choices() -> Vec<(&'static str, Self)>;
}

impl Field for f64 {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        list.push(Parameter { default: Some(Value::Number(*self)), ..parameter });
    }

    fn read(value: Value, [low, high]: Range) -> Result<f64, ParameterError> {
        match value {
            Value::Number(number) if (low..=high).contains(&number) => Ok(number),
            Value::Number(number) => {
                Err(ParameterError::new(format!("{number} is outside {low} to {high}"), "choose a number inside"))
            }
            _ => Err(ParameterError::new("this is not a number", "choose one")),
        }
    }
}

impl Field for u32 {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        f64::from(*self).describe(parameter, list);
    }

    fn read(value: Value, range: Range) -> Result<u32, ParameterError> {
        let number = f64::read(value, range)?;
        let whole = number as u32;
        match f64::from(whole) == number {
            true => Ok(whole),
            false => Err(ParameterError::new(format!("{number} is not an integer"), "round it")),
        }
    }
}

impl Field for Option<f64> {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        list.push(Parameter { default: self.map(Value::Number), ..parameter });
    }

    fn read(value: Value, range: Range) -> Result<Option<f64>, ParameterError> {
        f64::read(value, range).map(Some)
    }
}

/// A minimum and a maximum.
impl Field for [f64; 2] {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        list.push(Parameter { default: Some(Value::Numbers(self.to_vec())), ..parameter });
    }

    fn read(value: Value, [low, high]: Range) -> Result<[f64; 2], ParameterError> {
        let what = match value {
            Value::Numbers(numbers) => match *numbers {
                [min, max] if low <= min && min <= max && max <= high => return Ok([min, max]),
                _ => format!("{numbers:?} is not a range within {low} to {high}"),
            },
            _ => "this is not a range".into(),
        };
        Err(ParameterError::new(what, "give the minimum and the maximum"))
    }
}

/// A name.
impl Field for Option<String> {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        list.push(Parameter { default: self.clone().map(Value::Text), range: None, ..parameter });
    }

    fn read(value: Value, _: Range) -> Result<Option<String>, ParameterError> {
        match value {
            Value::Text(name) => Ok(Some(name)),
            _ => Err(ParameterError::new("this is not a name", "put it in quotes")),
        }
    }
}

impl<T: Choice> Field for T {
    fn describe(&self, parameter: Parameter, list: &mut List) {
        let word = T::choices().into_iter().find(|(_, value)| value == self).map(|(word, _)| Value::Text(word.into()));
        let choices = T::choices().into_iter().map(|(word, _)| word).collect();
        list.push(Parameter { default: word, choices, range: None, ..parameter });
    }

    fn read(value: Value, _: Range) -> Result<T, ParameterError> {
        let words: Vec<&str> = T::choices().into_iter().map(|(word, _)| word).collect();
        let unknown =
            |what: &str| ParameterError::new(format!("{what} is none of {}", words.join(", ")), "choose one of them");
        let Value::Text(given) = value else { return Err(unknown("this")) };
        let found = T::choices().into_iter().find(|(word, _)| *word == given);
        found.map(|(_, value)| value).ok_or_else(|| unknown(&given))
    }
}

impl Parameter {
    /// The description of a member of the group `self`, without its default.
    pub fn member(&self, name: &str, meaning: &'static str, unit: &'static str, range: Option<Range>) -> Parameter {
        Parameter { name: joined(&self.name, name), unit, range, meaning: meaning.trim(), ..Parameter::default() }
    }
}

/// Takes the parameter `name` out of a table.
///
/// # Errors
/// Its value is invalid.
pub fn take<T: Field>(table: &mut Table, name: &str, default: T, range: Option<Range>) -> Result<T, ParameterError> {
    let Some(value) = table.remove(name) else { return Ok(default) };
    T::read(value, range.unwrap_or(ANY)).map_err(|error| error.within(name))
}

/// The table of a group of parameters.
///
/// # Errors
/// The value is not a table.
pub fn table(value: Value) -> Result<Table, ParameterError> {
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(ParameterError::new("this is not a table of parameters", "write { … }")),
    }
}

/// Checks that no parameter is left that was not taken.
///
/// # Errors
/// Names the first, and those that exist.
pub fn nothing_left(table: &Table, names: &[&str]) -> Result<(), ParameterError> {
    let Some(key) = table.keys().next() else { return Ok(()) };
    let remedy = match names {
        [] => "remove it, there is none".into(),
        _ => format!("choose from {}", names.join(", ")),
    };
    Err(ParameterError::new("there is no such parameter", remedy).within(key))
}

fn joined(group: &str, name: &str) -> String {
    match (group, name) {
        ("", name) | (name, "") => name.to_owned(),
        _ => format!("{group}.{name}"),
    }
}

/// Declares a struct of parameters. Each has a doc comment, a type, a default and, if it is
/// a number, a unit (may be empty) and a range:
///
/// ```
/// crosslane_core::parameters! {
///     /// Parameters of an example.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Params {
///         /// Smoothing factor.
///         alpha: f64 = 0.5, "", 0.0 to 1.0;
///         /// Time to trigger.
///         time_to_trigger_ms: u32 = 80, "ms", 0.0 to 60e3;
///     }
/// }
/// let list = crosslane_core::parameters::list::<Params>();
/// assert_eq!((list[1].name.as_str(), list[1].unit, list[1].range), ("time_to_trigger_ms", "ms", Some([0.0, 60e3])));
/// ```
#[macro_export]
macro_rules! parameters {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[doc = $meaning:literal])+
        $field:ident: $type:ty = $default:expr $(, $unit:literal, $low:literal to $high:literal)?;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $meaning])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }

        impl $crate::parameters::Field for $name {
            fn describe(&self, group: $crate::parameters::Parameter, list: &mut $crate::parameters::List) {
                $(
                    let range = $crate::parameters::NO_RANGE$(.or(Some([$low, $high])))?;
                    let member = group.member(stringify!($field), concat!($($meaning),+), concat!($($unit)?), range);
                    $crate::parameters::Field::describe(&self.$field, member, list);
                )*
            }

            fn read(
                value: $crate::parameters::Value,
                _: $crate::parameters::Range,
            ) -> Result<$name, $crate::parameters::ParameterError> {
                let mut table = $crate::parameters::table(value)?;
                let read = $name {$(
                    $field: $crate::parameters::take(
                        &mut table,
                        stringify!($field),
                        $default,
                        $crate::parameters::NO_RANGE$(.or(Some([$low, $high])))?,
                    )?,
                )*};
                $crate::parameters::nothing_left(&table, &[$(stringify!($field)),*])?;
                Ok(read)
            }
        }
    };
}

#[cfg(test)]
mod tests;
