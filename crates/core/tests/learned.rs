//! The strategies with a learned tree, through the agent.

use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::Mode;
use crosslane_core::allocate::learned::features::{COUNT, RTT};
use crosslane_core::allocate::learned::tree::Tree;
use crosslane_core::allocate::learned::{Pairs, puts_first};
use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::reason::Reason;
use crosslane_core::strategy::{Strategy, learned, smartps};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::wanted::Order;

fn tree(strategy: &str, nodes: &str) -> Result<Tree, serde_json::Error> {
    serde_json::from_str(&format!(
        r#"{{"format": "crosslane-tree", "version": 1, "strategy": "{strategy}", "trained": {{"drives": 3}}, "nodes": [{nodes}]}}"#
    ))
}

/// Wi-Fi is first above −70 dBm.
const BY_SIGNAL: &str =
    r#"{"feature": "a.signal_dbm", "at_most": -70.0, "yes": 1, "no": 2}, {"a_first": 0.1}, {"a_first": 0.9}"#;
/// The path with the shorter RTT is first.
const BY_RTT: &str =
    r#"{"feature": "a-b.rtt_ms", "at_most": 0.0, "yes": 1, "no": 2}, {"a_first": 0.9}, {"a_first": 0.1}"#;

struct Testbed {
    agent: Agent,
    now: Instant,
    orders: Vec<(u64, Vec<u8>, Reason)>,
    /// The last order is none.
    is_free: bool,
}

impl Testbed {
    fn new(strategy: &dyn Strategy, tree: Tree, rats: &[Rat], mode: Mode) -> Testbed {
        let spec = |(place, rat): (usize, &Rat)| PathSpec {
            name: place.to_string(),
            rat: *rat,
            local: None,
            if_index: 0,
            radio: None,
        };
        let paths: Vec<PathSpec> = rats.iter().enumerate().map(spec).collect();
        let ranks: Vec<u8> = (0..rats.len() as u8).collect();
        let strategy = strategy.with_tree(tree).expect("a tree for this strategy");
        let agent = Agent::new(&paths, &ranks, mode, strategy, Vec::new());
        Testbed { agent, now: Instant::ZERO, orders: Vec::new(), is_free: false }
    }

    /// Passes samples of each path every 50 ms: its signal, in dBm, if it has one, and its RTT, in ms.
    fn run(&mut self, ms: u64, paths: &[(Option<f32>, u64)]) {
        for _ in 0..ms / 50 {
            self.now = self.now + Duration::from_millis(50);
            for (place, (dbm, rtt_ms)) in paths.iter().enumerate() {
                let signal = dbm.map(|rssi_dbm| SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() }));
                let transport = Transport { rtt: Duration::from_millis(*rtt_ms), ..Transport::IDLE };
                let is_first = self.now == Instant::from_millis(50);
                let up = is_first.then_some(SampleKind::Link { up: true });
                let kinds = [up, signal, Some(SampleKind::Transport(transport))];
                for kind in kinds.into_iter().flatten() {
                    self.agent.handle(self.now, Input::Sample(Sample { path: PathId(place as u8), kind }));
                }
            }
            while let Some(output) = self.agent.poll(self.now) {
                if let Output::Order { order, reason } = output {
                    let ms = self.now.as_nanos() / 1_000_000;
                    self.is_free = order == Order::Free;
                    self.orders.push((ms, order.paths().iter().map(|path| path.0).collect(), reason));
                }
            }
        }
    }

    fn states(&self) -> Vec<&'static str> {
        self.agent.paths().map(|(_, _, state)| state.name()).collect()
    }

    fn last(&self) -> (u64, &[u8], &'static str) {
        self.orders.last().map_or((0, &[], ""), |(ms, order, reason)| (*ms, order, reason.rule))
    }
}

#[test]
fn the_order_follows_the_tree_at_the_end_of_a_window_and_its_reason_is_the_way_to_the_leaf() {
    let by_signal = tree("smartps", BY_SIGNAL).expect("a tree");
    let mut testbed = Testbed::new(&smartps::Params::default(), by_signal, &[Rat::Lte, Rat::Wifi], Mode::Aggregate);
    testbed.run(1_000, &[(None, 30), (Some(-60.0), 30)]);
    assert_eq!(testbed.last().1, [1, 0], "{:?}", testbed.orders);
    testbed.run(250, &[(None, 30), (Some(-71.5), 30)]);
    let (_, order, reason) = testbed.orders.last().expect("an order");
    assert_eq!((&**order, reason.rule, &*reason.inputs), (&[0, 1][..], "learned.tree", &[("a_first", 0.1)][..]));
    assert_eq!(reason.text(), "the tree puts the paths in the order 0, 1: a.signal_dbm -71.5000 ≤ -70.0000");
}

#[test]
fn an_order_stands_for_its_least_time() {
    let by_rtt = tree("learned", BY_RTT).expect("a tree");
    let mut testbed = Testbed::new(&learned::Params::default(), by_rtt, &[Rat::Lte, Rat::Nr], Mode::Aggregate);
    testbed.run(500, &[(None, 30), (None, 20)]);
    let (first, order, _) = testbed.last();
    assert_eq!(order, [1, 0]);
    testbed.run(2_000, &[(None, 20), (None, 30)]);
    let (second, order, _) = testbed.last();
    assert_eq!(order, [0, 1]);
    assert!((first + 1_000..=first + 1_250).contains(&second), "{first} {second}");
}

#[test]
fn any_number_of_paths_is_ranked_by_one_tree() {
    let by_rtt = tree("learned", BY_RTT).expect("a tree");
    let rats = [Rat::Lte, Rat::Nr, Rat::Wifi, Rat::Lte];
    let mut testbed = Testbed::new(&learned::Params::default(), by_rtt, &rats, Mode::Aggregate);
    testbed.run(1_500, &[(None, 40), (None, 10), (Some(-50.0), 30), (None, 20)]);
    assert_eq!(testbed.last().1, [1, 3, 2, 0], "{:?}", testbed.orders);
}

#[test]
fn what_the_tree_cannot_say_is_left_to_the_rule_and_reported() {
    let rats = [Rat::Wifi, Rat::Lte];
    let by_signal = tree("smartps", BY_SIGNAL).expect("a tree");
    let mut testbed = Testbed::new(&smartps::Params::default(), by_signal, &rats, Mode::Aggregate);
    testbed.run(1_000, &[(Some(-60.0), 30), (None, 30)]);
    assert_eq!(testbed.last().1, [0, 1]);
    testbed.run(500, &[(Some(-60.0), 30), (None, 0)]);
    assert_eq!(testbed.last().1, [0, 1], "the tree does not ask for what is unknown");

    let unsure = BY_RTT.replace("0.9", "0.55");
    let tree = tree("learned", &unsure).expect("a tree");
    let mut testbed = Testbed::new(&learned::Params::default(), tree, &rats, Mode::Aggregate);
    testbed.run(1_000, &[(Some(-60.0), 40), (None, 30)]);
    assert_eq!(testbed.last().1, [1, 0]);
    testbed.run(2_000, &[(Some(-60.0), 30), (None, 0)]);
    let (_, order, reason) = testbed.orders.last().expect("an order");
    assert_eq!((order.len(), reason.rule), (0, "learned.rule"));
    assert_eq!(
        reason.text(),
        "the rule of `threshold` applies, since a-b.rtt_ms is unknown, stale or impossible, with a = path 0 and b = path 1"
    );
}

#[test]
fn a_leaf_that_is_not_sure_is_left_to_the_rule() {
    let tree = tree("learned", r#"{"a_first": 0.55}"#).expect("a tree");
    let mut testbed = Testbed::new(&learned::Params::default(), tree, &[Rat::Wifi, Rat::Lte], Mode::Aggregate);
    testbed.run(2_000, &[(Some(-60.0), 40), (None, 30)]);
    assert!(testbed.orders.is_empty(), "the order is the user's from the start");
}

/// As [`BY_RTT`], but neither path is first while the RTTs are alike; the fallback is no order.
fn with_no_order() -> Tree {
    let nodes = r#"{"feature": "a-b.rtt_ms", "at_most": -0.1, "yes": 1, "no": 2}, {"a_first": 0.9},
        {"feature": "a-b.rtt_ms", "at_most": 0.1, "yes": 3, "no": 4}, {"a_first": 0.5}, {"a_first": 0.1}"#;
    falls_back_to_no_order(nodes)
}

fn falls_back_to_no_order(nodes: &str) -> Tree {
    let text = format!(
        r#"{{"format": "crosslane-tree", "version": 1, "strategy": "learned", "fallback": "no-order", "nodes": [{nodes}]}}"#
    );
    serde_json::from_str(&text).expect("a tree")
}

#[test]
fn a_tree_whose_fallback_is_no_order_leaves_the_choice_to_the_scheduler_wherever_it_does_not_say() {
    let rats = [Rat::Lte, Rat::Nr];
    let mut testbed = Testbed::new(&learned::Params::default(), with_no_order(), &rats, Mode::Aggregate);
    testbed.run(50, &[(None, 0), (None, 0)]);
    assert!(testbed.is_free && testbed.orders.len() == 1, "from the start: {:?}", testbed.orders);
    testbed.run(1_000, &[(None, 30), (None, 31)]);
    assert_eq!(testbed.orders.len(), 1, "{:?}", testbed.orders);
    testbed.run(1_000, &[(None, 60), (None, 30)]);
    assert_eq!((testbed.last().1, testbed.last().2, testbed.is_free), (&[1, 0][..], "learned.tree", false));
    testbed.run(2_000, &[(None, 31), (None, 30)]);
    let (_, order, reason) = testbed.orders.last().expect("an order");
    assert_eq!((order.len(), reason.rule, testbed.is_free), (0, "learned.rule", true));
    let sentence =
        "the packet scheduler's own choice applies, since only 50 % of the training windows of its leaf agree";
    assert_eq!(reason.text(), sentence);
}

/// The path with the clearly shorter RTT carries alone; the fallback is no order.
fn with_alone() -> Tree {
    let nodes = r#"{"feature": "a-b.rtt_ms", "at_most": -0.1, "yes": 1, "no": 2}, {"a_first": 1.0, "alone": true},
        {"feature": "a-b.rtt_ms", "at_most": 0.1, "yes": 3, "no": 4}, {"a_first": 0.5}, {"a_first": 0.0, "alone": true}"#;
    falls_back_to_no_order(nodes)
}

#[test]
fn where_the_tree_says_so_a_path_carries_alone_and_the_others_are_in_reserve() {
    let rats = [Rat::Lte, Rat::Nr, Rat::Lte];
    let mut testbed = Testbed::new(&learned::Params::default(), with_alone(), &rats, Mode::Aggregate);
    testbed.run(2_000, &[(None, 30), (None, 31), (None, 32)]);
    assert_eq!(testbed.states(), ["active"; 3], "no order");
    testbed.run(2_000, &[(None, 60), (None, 30), (None, 60)]);
    assert_eq!(testbed.states(), ["backup", "active", "backup"]);
    let reason = &testbed.orders.last().expect("an order").2;
    assert_eq!(reason.text(), "the tree lets path 1 carry alone: a-b.rtt_ms -0.3333 ≤ -0.1000");
    let down = SampleKind::Link { up: false };
    testbed.agent.handle(testbed.now, Input::Sample(Sample { path: PathId(1), kind: down }));
    testbed.run(50, &[(None, 60), (None, 30), (None, 60)]);
    assert_eq!(testbed.states(), ["active", "closed", "backup"], "another one takes over");
    testbed.run(2_000, &[(None, 30), (None, 30), (None, 31)]);
    assert_eq!(testbed.states(), ["active", "closed", "active"], "and alike they carry together");
}

#[test]
fn a_path_carries_alone_only_if_the_tree_says_so_whichever_path_is_a() {
    let one_sided = BY_RTT.replace(r#"{"a_first": 0.9}"#, r#"{"a_first": 0.9, "alone": true}"#);
    let tree = tree("learned", &one_sided).expect("a tree");
    let mut testbed = Testbed::new(&learned::Params::default(), tree, &[Rat::Lte, Rat::Nr], Mode::Aggregate);
    testbed.run(2_000, &[(None, 30), (None, 20)]);
    assert_eq!((testbed.last().1, testbed.states()), (&[1, 0][..], vec!["active", "active"]));
}

#[test]
fn an_unknown_fallback_is_rejected() {
    let text = r#"{"format": "crosslane-tree", "version": 1, "strategy": "learned", "fallback": "none", "nodes": [{"a_first": 1}]}"#;
    let error = serde_json::from_str::<Tree>(text).expect_err("a fallback").to_string();
    assert!(error.starts_with("unknown variant `none`, expected `users-order` or `no-order`"), "{error}");
}

#[test]
fn in_backup_mode_the_first_path_of_the_order_carries() {
    let by_rtt = tree("learned", BY_RTT).expect("a tree");
    let mut testbed = Testbed::new(&learned::Params::default(), by_rtt, &[Rat::Lte, Rat::Nr], Mode::Backup);
    testbed.run(1_500, &[(None, 30), (None, 20)]);
    assert_eq!(testbed.states(), ["backup", "active"]);
    testbed.run(1_500, &[(None, 30), (None, 40)]);
    assert_eq!(testbed.states(), ["active", "backup"]);
}

#[test]
fn a_tree_is_for_one_strategy() {
    let wrong = smartps::Params::default().with_tree(tree("learned", BY_RTT).expect("a tree")).map(drop);
    assert_eq!(wrong, Err("the tree is for strategy \"learned\", and this is `smartps`".into()));
}

#[test]
fn each_way_in_which_a_file_is_no_tree_has_one_sentence() {
    let question = |feature: &str, yes: u16, no: u16| {
        format!(r#"{{"feature": "{feature}", "at_most": 1.0, "yes": {yes}, "no": {no}}}"#)
    };
    let leaf = r#"{"a_first": 0.5}"#;
    let chain = |questions: u16| {
        let nodes = (0..questions).flat_map(|i| [question("a.loss", 2 * i + 1, 2 * i + 2), leaf.into()]);
        nodes.chain([leaf.into()]).collect::<Vec<String>>().join(", ")
    };
    assert!(tree("learned", &chain(16)).is_ok());
    let cases = [
        (question("a.rtt", 1, 2), "node 0 asks for \"a.rtt\", and there is no such feature"),
        (question("a.loss", 0, 1) + ", " + leaf, "node 0 leads to node 0, which is earlier or follows another node"),
        (question("a.loss", 1, 1) + ", " + leaf, "node 0 leads to node 1, which is earlier or follows another node"),
        (question("a.loss", 1, 2) + ", " + leaf, "node 0 leads to node 2, which does not exist"),
        ([leaf; 2].join(", "), "no node leads to node 1"),
        (chain(17), "node 32 is question 17 in a row, and 16 are possible"),
        ([leaf; 2049].join(", "), "it has 2049 nodes, and 1 to 2048 are possible"),
        (String::new(), "it has 0 nodes, and 1 to 2048 are possible"),
        (r#"{"a_first": 1.5}"#.into(), "`a_first` of node 0 is 1.5, which is outside 0 to 1"),
        (r#"{"feature": "a.loss", "at_most": 1.0, "yes": 1, "no": 2, "alone": true}"#.into(), "node 0 has neither"),
        (r#"{"at_most": 1.5}"#.into(), "node 0 has neither `a_first` nor `feature`, `at_most`, `yes` and `no`"),
    ];
    for (nodes, expected) in cases {
        let error = tree("learned", &nodes).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let version = r#"{"format": "crosslane-tree", "version": 2, "strategy": "learned", "nodes": [{"a_first": 0.5}]}"#;
    let error = serde_json::from_str::<Tree>(version).expect_err("a version").to_string();
    assert!(error.starts_with("this is version 2 of format \"crosslane-tree\", and version 1 of"), "{error}");
    let cut = serde_json::from_str::<Tree>(&version[..60]).expect_err("cut short").to_string();
    assert!(cut.starts_with("EOF while parsing"), "{cut}");
}

#[test]
fn a_tree_says_what_it_was_trained_on() {
    let text = r#"{"format": "crosslane-tree", "version": 1, "strategy": "learned", "trained": TRAINED, "nodes": [{"a_first": 1}]}"#;
    let origin = |trained: &str| {
        serde_json::from_str::<Tree>(&text.replace("TRAINED", trained)).map(|tree| tree.origin().to_owned())
    };
    let of_lab = r#"{"rows": 38000, "accuracy": {"random": 0.71, "by drive": 0.7}, "seeds": [1, 2], "by": "x"}"#;
    assert_eq!(
        origin(of_lab).ok().as_deref(),
        Some("accuracy (by drive 0.7, random 0.71), by x, rows 38000, seeds (1, 2)")
    );
    assert_eq!(origin("null").ok().as_deref(), Some(""));
    assert_eq!(origin(&format!("{:?}", "x".repeat(10_000))).map(|origin| origin.len()).ok(), Some(300));
}

#[test]
fn a_choice_without_an_agent_is_the_one_that_the_agent_makes() {
    let values = |rtt_ms: u64| {
        let mut values = [f32::NAN; COUNT];
        values[RTT] = rtt_ms as f32;
        values
    };
    for (share, rtts_ms) in
        [("0.9", [30, 20]), ("0.9", [20, 30]), ("0.55", [30, 20]), ("0.62", [30, 20]), ("0.5", [30, 20])]
    {
        let nodes =
            BY_RTT.replace("0.9", share).replace("0.1", &format!("{:.2}", 1.0 - share.parse::<f64>().unwrap_or(0.0)));
        let (by_rtt, again) = (tree("learned", &nodes).expect("a tree"), tree("learned", &nodes).expect("a tree"));
        let mut testbed = Testbed::new(&learned::Params::default(), by_rtt, &[Rat::Lte, Rat::Nr], Mode::Aggregate);
        testbed.run(500, &[(None, rtts_ms[0]), (None, rtts_ms[1])]);
        let chosen = puts_first(&again, Pairs::Any, 0.6, [&values(rtts_ms[0]), &values(rtts_ms[1])]);
        let order: &[u8] = match chosen {
            Some(true) => &[0, 1],
            Some(false) => &[1, 0],
            None => &[],
        };
        assert_eq!(testbed.last().1, order, "{share} {rtts_ms:?}");
    }
}
