use super::*;
use alloc::string::ToString;
use alloc::vec;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Colour {
    Red,
    Blue,
}

impl Choice for Colour {
    fn choices() -> Vec<(&'static str, Colour)> {
        vec![("red", Colour::Red), ("blue", Colour::Blue)]
    }
}

crate::parameters! {
    /// A group.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Group {
        /// A number
        /// on two lines.
        level_db: f64 = 3.0, "dB", 0.0 to 60.0;
        /// An integer.
        count: u32 = 4, "count", 0.0 to 9.0;
    }
}

crate::parameters! {
    /// All types.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Params {
        /// A group.
        group: Group = Group::default();
        /// A number that may be unset.
        limit: Option<f64> = None, "s", 0.0 to 1.0;
        /// A range.
        span: [f64; 2] = [1.0, 2.0], "", 1.0 to 10.0;
        /// A word.
        colour: Colour = Colour::Blue;
        /// A name.
        path: Option<String> = None;
    }
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

fn fault(name: &str, value: Value) -> String {
    read::<Params>(table([(name, value)])).map_or_else(|fault| fault.to_string(), |read| format!("{read:?}"))
}

#[test]
fn parameters_are_listed_with_group_unit_range_default_and_meaning() {
    let list = list::<Params>();
    let names: Vec<&str> = list.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["group.level_db", "group.count", "limit", "span", "colour", "path"]);
    let level = Parameter {
        name: "group.level_db".into(),
        unit: "dB",
        range: Some([0.0, 60.0]),
        default: Some(Value::Number(3.0)),
        meaning: "A number on two lines.",
        choices: vec![],
    };
    assert_eq!(list[0], level);
    assert_eq!((list[2].default.clone(), list[5].default.clone()), (None, None));
    assert_eq!(list[3].default, Some(Value::Numbers(vec![1.0, 2.0])));
    assert_eq!((list[4].default.clone(), &*list[4].choices), (Some(Value::Text("blue".into())), &["red", "blue"][..]));
}

#[test]
fn what_a_table_lacks_has_its_default() {
    assert_eq!(read(Table::new()), Ok(Params::default()));
    let given =
        table([("colour", Value::Text("red".into())), ("group", Value::Table(table([("count", Value::Number(9.0))])))]);
    let expected = Params { colour: Colour::Red, group: Group { count: 9, ..Group::default() }, ..Params::default() };
    assert_eq!(read(given), Ok(expected));
}

#[test]
fn a_fault_names_the_parameter_and_the_remedy() {
    let group = |name: &str, value: Value| fault("group", Value::Table(table([(name, value)])));
    assert_eq!(
        group("level_db", Value::Number(61.0)),
        "`group.level_db`: 61 is outside 0 to 60; choose a number inside"
    );
    assert!(group("level_db", Value::Number(f64::NAN)).starts_with("`group.level_db`: NaN is outside"));
    assert_eq!(group("count", Value::Number(1.5)), "`group.count`: 1.5 is not an integer; round it");
    assert_eq!(
        group("coun", Value::Number(1.0)),
        "`group.coun`: there is no such parameter; choose from level_db, count"
    );
    assert_eq!(fault("group", Value::Number(1.0)), "`group`: this is not a table of parameters; write { … }");
    assert_eq!(fault("limit", Value::Text("x".into())), "`limit`: this is not a number; choose one");
    assert!(
        fault("span", Value::Numbers(vec![3.0, 2.0])).starts_with("`span`: [3.0, 2.0] is not a range within 1 to 10")
    );
    assert_eq!(
        fault("colour", Value::Text("green".into())),
        "`colour`: green is none of red, blue; choose one of them"
    );
    assert_eq!(fault("path", Value::Number(1.0)), "`path`: this is not a name; put it in quotes");
}
