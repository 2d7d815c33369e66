//! A decision tree that says which of two paths is to be first, as read from its file
//! (`docs/reference/tree.md`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;

use super::features::{Feature, Values};
use crate::wanted::Order;

/// The format, as the file names it.
const FORMAT: &str = "crosslane-tree";
/// The version of the format.
const VERSION: u32 = 1;
/// Maximum number of questions from the root to a leaf.
pub const MAX_DEPTH: usize = 16;
/// Characters that are kept of what it was trained on.
const MAX_ORIGIN: usize = 300;
/// Maximum number of nodes: a tree is to stay below 200 kB.
pub const MAX_NODES: usize = 2048;

/// A valid tree: every question leads to a leaf.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "File")]
pub struct Tree {
    strategy: String,
    origin: String,
    fallback: Fallback,
    nodes: Vec<Node>,
}

/// What applies where a tree does not say which path is to be first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The user's order.
    #[default]
    UsersOrder,
    /// No order: the packet scheduler selects a path for each packet.
    NoOrder,
}

impl Fallback {
    /// The order that applies.
    pub fn order(self) -> Order {
        match self {
            Fallback::UsersOrder => Order::Preference,
            Fallback::NoOrder => Order::Free,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    Question { feature: Feature, at_most: f64, yes: u16, no: u16 },
    Leaf { a_first: f64, is_alone: bool },
}

/// The answer for two paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Share of the training windows in the leaf in which path `a` was to be first (0 to 1).
    pub a_first: f64,
    /// Whether the first path is to carry alone, the other one in reserve.
    pub is_alone: bool,
    /// The leaf.
    leaf: u16,
    way: [u16; MAX_DEPTH],
    depth: usize,
}

/// A question on the way to a leaf, and its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// What was asked.
    pub feature: Feature,
    /// The threshold.
    pub at_most: f64,
    /// Whether the feature was at most the threshold.
    pub is_yes: bool,
}

impl Tree {
    /// Name of the strategy that it was trained for.
    pub fn strategy(&self) -> &str {
        &self.strategy
    }

    /// What it was trained on and how good it was, as its file says; may be empty.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What applies where it does not say which path is to be first.
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// Number of its nodes.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Which of two paths is to be first. Compares as scikit-learn does, a value of 32 bits with
    /// a threshold of 64. It allocates nothing.
    ///
    /// # Errors
    /// A feature that is asked for and unknown.
    pub fn ask(&self, a: &Values, b: &Values) -> Result<Answer, Feature> {
        let (mut place, mut way, mut depth) = (0, [0; MAX_DEPTH], 0);
        loop {
            match self.nodes[usize::from(place)] {
                Node::Leaf { a_first, is_alone } => return Ok(Answer { a_first, is_alone, leaf: place, way, depth }),
                Node::Question { feature, at_most, yes, no } => {
                    let value = feature.value(a, b);
                    if value.is_nan() {
                        return Err(feature);
                    }
                    way[depth] = place;
                    depth += 1;
                    place = if f64::from(value) <= at_most { yes } else { no };
                }
            }
        }
    }

    /// The questions from the root to the leaf of an answer.
    pub fn way(&self, answer: &Answer) -> impl Iterator<Item = Step> {
        let places = &answer.way[..answer.depth];
        let next = places.iter().copied().skip(1).chain([answer.leaf]);
        places.iter().zip(next).filter_map(|(place, next)| match self.nodes[usize::from(*place)] {
            Node::Question { feature, at_most, yes, .. } => Some(Step { feature, at_most, is_yes: next == yes }),
            Node::Leaf { .. } => None,
        })
    }

    /// The features that it asks for with their thresholds, in the order of the nodes.
    pub fn questions(&self) -> impl Iterator<Item = (Feature, f64)> {
        self.nodes.iter().filter_map(|node| match *node {
            Node::Question { feature, at_most, .. } => Some((feature, at_most)),
            Node::Leaf { .. } => None,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u32,
    strategy: String,
    /// What it was trained on and how good it was, for people.
    #[serde(default)]
    trained: Fact,
    #[serde(default)]
    fallback: Fallback,
    nodes: Vec<FileNode>,
}

/// What a file says of its training.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Fact {
    Text(String),
    Number(f64),
    Facts(BTreeMap<String, Fact>),
    List(Vec<Fact>),
    Flag(bool),
    #[default]
    Nothing,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = |facts: &mut dyn Iterator<Item = (&str, &Fact)>| {
            facts.enumerate().try_for_each(|(place, (name, fact))| {
                let comma = if place > 0 { ", " } else { "" };
                let [open, close] = if fact.is_nested() { ["(", ")"] } else { ["", ""] };
                let space = if name.is_empty() { "" } else { " " };
                write!(f, "{comma}{name}{space}{open}{fact}{close}")
            })
        };
        match self {
            Fact::Facts(facts) => all(&mut facts.iter().map(|(name, fact)| (&**name, fact))),
            Fact::List(facts) => all(&mut facts.iter().map(|fact| ("", fact))),
            Fact::Text(text) => f.write_str(text),
            Fact::Number(number) => write!(f, "{number}"),
            Fact::Flag(flag) => write!(f, "{flag}"),
            Fact::Nothing => Ok(()),
        }
    }
}

impl Fact {
    fn is_nested(&self) -> bool {
        matches!(self, Fact::Facts(_) | Fact::List(_))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileNode {
    feature: Option<String>,
    at_most: Option<f64>,
    yes: Option<u16>,
    no: Option<u16>,
    a_first: Option<f64>,
    alone: Option<bool>,
}

impl TryFrom<File> for Tree {
    type Error = String;

    fn try_from(file: File) -> Result<Tree, String> {
        if file.format != FORMAT || file.version != VERSION {
            return Err(format!(
                "this is version {} of format {:?}, and version {VERSION} of {FORMAT:?} is needed",
                file.version, file.format
            ));
        }
        if file.nodes.is_empty() || file.nodes.len() > MAX_NODES {
            return Err(format!("it has {} nodes, and 1 to {MAX_NODES} are possible", file.nodes.len()));
        }
        let nodes = file.nodes.iter().enumerate().map(|(place, node)| read(place, node));
        let nodes: Vec<Node> = nodes.collect::<Result<_, _>>()?;
        check_shape(&nodes)?;
        let origin = file.trained.to_string().chars().take(MAX_ORIGIN).collect();
        Ok(Tree { strategy: file.strategy, origin, fallback: file.fallback, nodes })
    }
}

fn read(place: usize, node: &FileNode) -> Result<Node, String> {
    let question = (&node.feature, node.at_most, node.yes, node.no);
    match (question, node.a_first, node.alone) {
        ((None, None, None, None), Some(a_first), alone) if (0.0..=1.0).contains(&a_first) => {
            Ok(Node::Leaf { a_first, is_alone: alone.unwrap_or(false) })
        }
        ((None, None, None, None), Some(a_first), _) => {
            Err(format!("`a_first` of node {place} is {a_first}, which is outside 0 to 1"))
        }
        ((Some(name), Some(at_most), Some(yes), Some(no)), None, None) if at_most.is_finite() => {
            let feature = Feature::find(name)
                .ok_or_else(|| format!("node {place} asks for {name:?}, and there is no such feature"))?;
            Ok(Node::Question { feature, at_most, yes, no })
        }
        _ => Err(format!("node {place} has neither `a_first` nor `feature`, `at_most`, `yes` and `no`")),
    }
}

/// Checks that the nodes are one tree: each but the root follows one earlier node.
fn check_shape(nodes: &[Node]) -> Result<(), String> {
    let mut depths = vec![None; nodes.len()];
    depths[0] = Some(0);
    for (place, node) in nodes.iter().enumerate() {
        let Some(depth) = depths[place] else { return Err(format!("no node leads to node {place}")) };
        let Node::Question { yes, no, .. } = *node else { continue };
        if depth == MAX_DEPTH {
            return Err(format!("node {place} is question {} in a row, and {MAX_DEPTH} are possible", depth + 1));
        }
        for next in [yes, no] {
            let Some(known) = depths.get_mut(usize::from(next)) else {
                return Err(format!("node {place} leads to node {next}, which does not exist"));
            };
            if usize::from(next) <= place || known.is_some() {
                return Err(format!("node {place} leads to node {next}, which is earlier or follows another node"));
            }
            *known = Some(depth + 1);
        }
    }
    Ok(())
}
