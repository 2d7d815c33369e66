//! A decision tree fitted to samples: grown by entropy with `linfa-trees`, and pruned where later samples do not agree
//! with it (reduced-error pruning: Quinlan 1987, *Simplifying decision trees*).

use crosslane_core::allocate::learned::features::Feature;
use linfa::DatasetBase;
use linfa::traits::Fit;
use linfa_trees::{DecisionTree, SplitQuality, TreeNode};
use ndarray::{Array1, Array2};
use serde_json::{Value, json};

use super::samples::Sample;

/// Maximum number of questions to a leaf: 127 nodes, less than 10 kB.
const MAX_DEPTH: usize = 6;
/// Least part of the weight that a leaf has, and the least weight, in samples of mean weight.
const LEAF_PART: f32 = 0.02;
const LEAST_IN_LEAF: f32 = 20.0;
/// A question lowers the entropy by at least this, in bit.
const LEAST_GAIN: f64 = 1e-3;

/// A node.
#[derive(Debug, Default)]
pub struct Node {
    /// Weight of the samples in it in which `a` is to be first, and in which `b` is.
    weights: [f32; 2],
    question: Option<Question>,
}

#[derive(Debug)]
struct Question {
    /// Place of the feature.
    feature: usize,
    at_most: f64,
    yes: Box<Node>,
    no: Box<Node>,
}

/// A tree that is grown on some samples and pruned by later ones; its leaves have the shares of both.
///
/// # Errors
/// What the library reports.
pub fn fit(first: &[Sample], later: &[Sample]) -> Result<Node, String> {
    let mut root = grow(first)?;
    root.count(&first.iter().collect::<Vec<_>>());
    root.prune(&later.iter().collect::<Vec<_>>());
    root.count(&first.iter().chain(later).collect::<Vec<_>>());
    Ok(root)
}

fn grow(samples: &[Sample]) -> Result<Node, String> {
    let columns = samples.first().map_or(0, |sample| sample.features.len());
    if columns == 0 {
        return Ok(Node::default());
    }
    let values = samples.iter().flat_map(|sample| sample.features.iter().copied().map(f64::from)).collect();
    let records = Array2::from_shape_vec((samples.len(), columns), values).map_err(|fault| fault.to_string())?;
    let targets: Array1<bool> = samples.iter().map(|sample| sample.a_first).collect();
    let count = samples.len() as f32;
    let mean = samples.iter().map(|sample| sample.weight).sum::<f32>() / count;
    let weights: Array1<f32> = samples.iter().map(|sample| sample.weight / mean).collect();
    let least = (LEAF_PART * count).max(LEAST_IN_LEAF);
    let tree = DecisionTree::<f64, bool>::params()
        .split_quality(SplitQuality::Entropy)
        .max_depth(Some(MAX_DEPTH))
        .min_weight_split(2.0 * least)
        .min_weight_leaf(least)
        .min_impurity_decrease(LEAST_GAIN)
        .fit(&DatasetBase::new(records, targets).with_weights(weights))
        .map_err(|fault| fault.to_string())?;
    Ok(node(tree.root_node()))
}

/// The library's node. It lets samples at most the threshold go to the first child when it fits, and below it when it
/// predicts: so its predictions are not used, and ours are those of the fit.
fn node(of: &TreeNode<f64, bool>) -> Node {
    let children = of.children();
    let question = match children.as_slice() {
        [Some(yes), Some(no)] if !of.is_leaf() => {
            let (feature, at_most, _) = of.split();
            Some(Question { feature, at_most, yes: Box::new(node(yes)), no: Box::new(node(no)) })
        }
        _ => None,
    };
    Node { question, ..Node::default() }
}

impl Question {
    fn split<'a>(&self, samples: &[&'a Sample]) -> (Vec<&'a Sample>, Vec<&'a Sample>) {
        samples.iter().partition(|sample| f64::from(sample.features[self.feature]) <= self.at_most)
    }
}

fn weights(samples: &[&Sample]) -> [f32; 2] {
    let of =
        |a_first: bool| samples.iter().filter(|sample| sample.a_first == a_first).map(|sample| sample.weight).sum();
    [of(true), of(false)]
}

impl Node {
    /// Counts the samples in each node.
    fn count(&mut self, samples: &[&Sample]) {
        self.weights = weights(samples);
        if let Some(question) = &mut self.question {
            let (yes, no) = question.split(samples);
            question.yes.count(&yes);
            question.no.count(&no);
        }
    }

    /// Removes each question without which as much or more of these samples is right; returns the weight of the others.
    fn prune(&mut self, samples: &[&Sample]) -> f32 {
        let [for_a, for_b] = weights(samples);
        let as_leaf = if self.weights[0] > self.weights[1] { for_b } else { for_a };
        let Some(question) = &mut self.question else { return as_leaf };
        let (yes, no) = question.split(samples);
        let wrong = question.yes.prune(&yes) + question.no.prune(&no);
        if wrong < as_leaf {
            return wrong;
        }
        self.question = None;
        as_leaf
    }

    /// The nodes as in a tree's file, the root first.
    pub fn nodes(&self, features: &[Feature]) -> Vec<Value> {
        let mut nodes = Vec::new();
        self.add_to(&mut nodes, features);
        nodes
    }

    fn add_to(&self, nodes: &mut Vec<Value>, features: &[Feature]) {
        let place = nodes.len();
        let [for_a, for_b] = self.weights;
        let share = if for_a + for_b > 0.0 { f64::from(for_a / (for_a + for_b)) } else { 0.5 };
        nodes.push(json!({ "a_first": (share * 1e4).round() / 1e4 }));
        let Some(Question { feature, at_most, yes, no }) = &self.question else { return };
        yes.add_to(nodes, features);
        let second = nodes.len();
        no.add_to(nodes, features);
        let name = features[*feature].name();
        nodes[place] = json!({ "feature": name, "at_most": at_most, "yes": place + 1, "no": second });
    }
}

#[cfg(test)]
mod tests {
    use crosslane_core::allocate::learned::features::{COUNT, Values};
    use crosslane_core::allocate::learned::tree::Tree;

    use super::*;

    fn samples(count: usize, mut a_first: impl FnMut(f32, f32) -> bool) -> Vec<Sample> {
        let sample = |place: usize| {
            let (x, y) = ((place % 37) as f32, (place / 37) as f32);
            Sample { features: vec![x, y], a_first: a_first(x, y), weight: 1.0 }
        };
        (0..count).map(sample).collect()
    }

    fn features() -> Vec<Feature> {
        ["a.rtt_ms", "b.rtt_ms"].into_iter().filter_map(Feature::find).collect()
    }

    fn tree(root: &Node) -> Tree {
        let file = json!({ "format": "crosslane-tree", "version": 1, "strategy": "smartps", "nodes": root.nodes(&features()) });
        assert!(file.to_string().len() < 20_000);
        serde_json::from_value(file).expect("a tree")
    }

    fn asked(tree: &Tree, x: f32, y: f32) -> f64 {
        let rtt = |ms| {
            let mut values: Values = [f32::NAN; COUNT];
            values[crosslane_core::allocate::learned::features::RTT] = ms;
            values
        };
        tree.ask(&rtt(x), &rtt(y)).expect("known").a_first
    }

    #[test]
    fn the_file_answers_as_was_fitted_on_both_sides_of_each_threshold() {
        let samples = samples(37 * 37, |x, y| (x < 10.0) ^ (y < 20.0 && x > 25.0));
        let tree = tree(&fit(&samples, &samples).unwrap());
        for sample in &samples {
            let [x, y] = sample.features[..] else { panic!("two features") };
            assert_eq!(asked(&tree, x, y), f64::from(u8::from(sample.a_first)), "{x} {y}");
        }
        let thresholds: Vec<(Feature, f64)> = tree.questions().collect();
        assert!(thresholds.len() >= 3, "{thresholds:?}");
        for (feature, at_most) in thresholds {
            // The library's own predictions take this value to the other side.
            let at = at_most as f32;
            assert_eq!(f64::from(at), at_most, "midway between whole numbers");
            let [low, high, on] = [at - 0.5, at + 0.5, at].map(|value| match feature == features()[0] {
                true => asked(&tree, value, 5.0),
                false => asked(&tree, 30.0, value),
            });
            assert_eq!((on, low != high), (low, true), "{} {at_most}", feature.name());
        }
    }

    #[test]
    fn what_later_samples_do_not_confirm_is_pruned() {
        let mut state = 1_u32;
        let mut chance = |_: f32, _: f32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 31 == 1
        };
        let (first, later) = (samples(2_000, &mut chance), samples(500, &mut chance));
        let grown = grow(&first).unwrap();
        let kept = fit(&first, &later).unwrap();
        let [grown, kept] = [&grown, &kept].map(|root| root.nodes(&features()).len());
        assert!(grown > 2 * kept, "{grown} nodes, {kept} after pruning");
    }

    #[test]
    fn without_features_or_with_the_same_label_always_there_is_one_leaf() {
        let none = Sample { features: vec![], a_first: true, weight: 1.0 };
        let root = fit(&vec![none; 100], &[]).unwrap();
        assert_eq!(root.nodes(&[]), [json!({ "a_first": 1.0 })]);
        assert_eq!(fit(&samples(500, |_, _| false), &[]).unwrap().nodes(&features()), [json!({ "a_first": 0.0 })]);
    }
}
