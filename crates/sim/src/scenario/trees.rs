//! The learned trees that strategies of a scenario name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crosslane_core::allocate::learned::tree::Tree;
use crosslane_core::strategy;

use super::base::{self, values};
use super::{Base, FileRef, Scenario, ScenarioError, Strategy, TunnelParams};

/// The parameter that names a tree.
const KEY: &str = "tree";
/// Parameters of a tunnel that are those of the strategy that selects its paths.
const OF_STEERING: [&str; 2] = [KEY, "trials"];

impl Strategy {
    /// Name of the tree's file that it uses, if any.
    pub fn tree_file(&self) -> Option<&str> {
        self.parameters.get(KEY).and_then(toml::Value::as_str)
    }

    /// The strategy of the agent that selects the paths of a tunnel, with the tunnel's tree and share of trials.
    pub fn steering(&self, entry: &'static strategy::Entry) -> Strategy {
        let given = OF_STEERING.iter().filter_map(|key| Some(((*key).to_owned(), self.parameters.get(*key)?.clone())));
        Strategy { name: self.name.clone(), base: Base::Agent(entry), parameters: given.collect() }
    }
}

impl Scenario {
    /// The agent's strategy with these parameters, and with the tree that they name.
    ///
    /// # Errors
    /// Invalid parameters, or a tree for another strategy.
    pub fn agent_strategy(
        &self,
        entry: &strategy::Entry,
        given: &Strategy,
    ) -> Result<Arc<dyn strategy::Strategy>, ScenarioError> {
        let rejected = |what: String| {
            let remedy = "see docs/reference/strategies.md for the strategies and their parameters";
            let place = self.strategies.iter().position(|strategy| strategy.name == given.name).unwrap_or(0);
            self.lines.error(&format!("strategy.{place}"), format!("strategy `{}`: {what}", given.name), remedy)
        };
        let strategy = entry.read(values(&given.parameters)).map_err(|fault| rejected(fault.to_string()))?;
        match strategy.tree_file().map(|name| self.data.trees.get(name)) {
            Some(Some(tree)) => strategy.with_tree(tree.clone()).map_err(rejected),
            Some(None) => Err(rejected("its tree was not read".into())),
            None => Ok(strategy),
        }
    }

    /// Checks the strategies that an agent of this scenario would have.
    pub(super) fn check_agent_strategies(&self) -> Result<(), ScenarioError> {
        for strategy in &self.strategies {
            match strategy.base {
                Base::Agent(entry) => self.agent_strategy(entry, strategy).map(drop)?,
                Base::Tunnel => {
                    let params = base::read::<TunnelParams>(&strategy.parameters).unwrap_or_default();
                    let entry = params.steer.0;
                    self.agent_strategy(entry, &strategy.steering(entry)).map(drop)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn tree_files(&self) -> impl Iterator<Item = FileRef> {
        let named = self.strategies.iter().enumerate();
        named.filter_map(|(place, strategy)| {
            Some(self.file_ref(strategy.tree_file()?, &format!("strategy.{place}.{KEY}")))
        })
    }

    /// The trees from the contents of their files.
    pub(super) fn trees(&self, contents: &BTreeMap<String, String>) -> Result<BTreeMap<String, Tree>, ScenarioError> {
        let mut trees = BTreeMap::new();
        for (place, strategy) in self.strategies.iter().enumerate() {
            let Some(name) = strategy.tree_file() else { continue };
            let text = self.content(contents, name, &format!("strategy.{place}.{KEY}"))?;
            let tree = serde_json::from_str(text).map_err(|fault| ScenarioError {
                file: name.into(),
                line: Some(fault.line()).filter(|line| *line > 0),
                what: fault.to_string(),
                remedy: "make the tree again with `crosslane-lab learn train`".into(),
            })?;
            trees.insert(name.to_string(), tree);
        }
        Ok(trees)
    }
}
