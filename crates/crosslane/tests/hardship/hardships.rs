//! Hardships of a vehicle, as a sequence of steps that a run carries out.
//! Each is undone at its end, so none is in effect after the last step.

use serde::{Deserialize, Serialize};

use super::plan::{CALM_MS, Draw, FIRST_MS, PathPlan, Topology};

/// One hardship.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hardship {
    /// Start, in ms of the run.
    pub at_ms: u64,
    /// Duration.
    pub for_ms: u64,
    /// Kind of hardship.
    pub kind: Kind,
}

/// Kinds of hardships. Paths are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The interface of the vehicle goes down, and up again with its address.
    LinkDown { path: usize },
    /// The same, several times in a row.
    Flapping { path: usize, times: u64 },
    /// The interface loses its address and gets another one, several times.
    Readdress { path: usize, times: u64 },
    /// The vehicle has no route over the path.
    NoRoute { path: usize },
    /// The interface of the server goes down.
    FarLinkDown { path: usize },
    /// The router drops packets silently.
    Silent { path: usize, up: bool, down: bool },
    /// The router answers with ICMP, destination unreachable.
    Refused { path: usize },
    /// The router answers every segment with a reset.
    Reset { path: usize },
    /// The router removes MPTCP options.
    Strip { path: usize },
    /// The router forgets its address translations and assigns other ports.
    Rebind { path: usize },
    /// SIGKILL; started again at the end.
    AgentKilled,
    /// SIGTERM; started again at the end.
    AgentEnded,
    /// `net.mptcp.path_manager` is `kernel` for this time.
    KernelManager,
}

/// Behaviour of a router for the packets of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Forwards them.
    #[default]
    Forward,
    /// Drops packets of the given directions.
    Drop {
        /// From the vehicle.
        up: bool,
        /// To the vehicle.
        down: bool,
    },
    /// Answers with ICMP.
    Refuse,
    /// Answers with a reset.
    Reset,
    /// Removes MPTCP options.
    Strip,
}

/// One action of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets the interface of the vehicle up or down.
    Link { path: usize, up: bool },
    /// Removes the address of the interface, or adds a different one.
    Address { path: usize, there: bool },
    /// Removes or adds the routes of the path on the vehicle.
    Routes { path: usize, there: bool },
    /// Sets the interface of the server up or down.
    FarLink { path: usize, up: bool },
    /// Sets the behaviour of the router of a path.
    Router { path: usize, behaviour: Behaviour },
    /// Clears the address translations of the router.
    Forget { path: usize },
    /// Ends the agent by SIGTERM if `gracefully`, otherwise by SIGKILL.
    EndAgent { gracefully: bool },
    /// Starts an agent.
    StartAgent,
    /// Selects the path manager of new connections.
    Manager { kernel: bool },
}

/// Resource that only one hardship may affect at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Link(usize),
    Router(usize),
    Agent,
    Manager,
}

impl Kind {
    /// Names of all kinds.
    pub const NAMES: [&'static str; 13] = [
        "link-down",
        "flapping",
        "readdress",
        "no-route",
        "far-link-down",
        "silent",
        "refused",
        "reset",
        "strip",
        "rebind",
        "agent-killed",
        "agent-ended",
        "kernel-manager",
    ];

    /// Its name.
    pub fn name(&self) -> &'static str {
        let place = match self {
            Kind::LinkDown { .. } => 0,
            Kind::Flapping { .. } => 1,
            Kind::Readdress { .. } => 2,
            Kind::NoRoute { .. } => 3,
            Kind::FarLinkDown { .. } => 4,
            Kind::Silent { .. } => 5,
            Kind::Refused { .. } => 6,
            Kind::Reset { .. } => 7,
            Kind::Strip { .. } => 8,
            Kind::Rebind { .. } => 9,
            Kind::AgentKilled => 10,
            Kind::AgentEnded => 11,
            Kind::KernelManager => 12,
        };
        Kind::NAMES[place]
    }

    fn resource(self) -> Resource {
        match self {
            Kind::LinkDown { path }
            | Kind::Flapping { path, .. }
            | Kind::Readdress { path, .. }
            | Kind::NoRoute { path }
            | Kind::FarLinkDown { path } => Resource::Link(path),
            Kind::Silent { path, .. }
            | Kind::Refused { path }
            | Kind::Reset { path }
            | Kind::Strip { path }
            | Kind::Rebind { path } => Resource::Router(path),
            Kind::AgentKilled | Kind::AgentEnded => Resource::Agent,
            Kind::KernelManager => Resource::Manager,
        }
    }

    /// Path changes that it causes for a connection; each requires commands.
    pub fn changes(&self) -> u64 {
        match *self {
            Kind::Flapping { times, .. } | Kind::Readdress { times, .. } => 2 * times,
            Kind::KernelManager => 0,
            _ => 2,
        }
    }
}

impl Hardship {
    /// Its steps and the time of each in ms of the run.
    pub fn steps(&self) -> Vec<(u64, Step)> {
        let (from, until) = (self.at_ms, self.at_ms + self.for_ms);
        let router = |path, behaviour| {
            vec![
                (from, Step::Router { path, behaviour }),
                (until, Step::Router { path, behaviour: Behaviour::Forward }),
            ]
        };
        let toggled = |times: u64, step: &dyn Fn(bool) -> Step| {
            let half = self.for_ms / (2 * times);
            (0..2 * times).map(|turn| (from + turn * half, step(turn % 2 == 1))).collect::<Vec<_>>()
        };
        match self.kind {
            Kind::LinkDown { path } => toggled(1, &|up| Step::Link { path, up }),
            Kind::Flapping { path, times } => toggled(times, &|up| Step::Link { path, up }),
            Kind::Readdress { path, times } => toggled(times, &|there| Step::Address { path, there }),
            Kind::NoRoute { path } => toggled(1, &|there| Step::Routes { path, there }),
            Kind::FarLinkDown { path } => toggled(1, &|up| Step::FarLink { path, up }),
            Kind::Silent { path, up, down } => router(path, Behaviour::Drop { up, down }),
            Kind::Refused { path } => router(path, Behaviour::Refuse),
            Kind::Reset { path } => router(path, Behaviour::Reset),
            Kind::Strip { path } => router(path, Behaviour::Strip),
            Kind::Rebind { path } => vec![(from, Step::Forget { path })],
            Kind::AgentKilled => vec![(from, Step::EndAgent { gracefully: false }), (until, Step::StartAgent)],
            Kind::AgentEnded => vec![(from, Step::EndAgent { gracefully: true }), (until, Step::StartAgent)],
            Kind::KernelManager => {
                vec![(from, Step::Manager { kernel: true }), (until, Step::Manager { kernel: false })]
            }
        }
    }

    /// A readable description in one line.
    pub fn describe(&self) -> String {
        format!("{:.1} s for {:.1} s: {:?}", self.at_ms as f64 / 1e3, self.for_ms as f64 / 1e3, self.kind)
    }
}

/// Draws up to `max` hardships that do not overlap on the same resource.
pub fn draw(draw: &mut Draw, topology: Topology, paths: &[PathPlan], max: u64) -> Vec<Hardship> {
    let mut drawn: Vec<Hardship> = Vec::new();
    for _ in 0..draw.from(max.min(3), max) {
        // Connections start on the first path, so it is affected more often.
        let path = if draw.chance(35) { 0 } else { draw.from(0, paths.len() as u64 - 1) as usize };
        let kind = kind(draw, topology, path, paths[path].nat);
        let mut for_ms = match kind {
            Kind::Flapping { times, .. } => times * draw.from(100, 600),
            Kind::Readdress { times, .. } => times * draw.from(200, 1_600),
            Kind::Reset { .. } => draw.from(50, 1_500),
            Kind::Rebind { .. } => 1,
            _ => draw.from(300, 3_500),
        };
        let at_ms = draw.from(FIRST_MS, CALM_MS - 500);
        for_ms = for_ms.min(CALM_MS - at_ms);
        let overlaps = |other: &Hardship| {
            other.kind.resource() == kind.resource()
                && at_ms < other.at_ms + other.for_ms + 50
                && other.at_ms < at_ms + for_ms + 50
        };
        if !drawn.iter().any(overlaps) {
            drawn.push(Hardship { at_ms, for_ms, kind });
        }
    }
    drawn.sort_by_key(|hardship| hardship.at_ms);
    drawn
}

fn kind(draw: &mut Draw, topology: Topology, path: usize, nat: bool) -> Kind {
    let times = draw.from(1, 3);
    let of_link = [
        Kind::LinkDown { path },
        Kind::LinkDown { path },
        Kind::Flapping { path, times: times + 1 },
        Kind::Readdress { path, times },
        Kind::Readdress { path, times },
        Kind::NoRoute { path },
    ];
    let of_agent = [Kind::AgentKilled, Kind::AgentEnded, Kind::KernelManager];
    let (up, down) = draw.one_of(&[(true, true), (true, true), (true, false), (false, true)]);
    let of_router = [
        Kind::Silent { path, up, down },
        Kind::Silent { path, up, down },
        Kind::Refused { path },
        Kind::Reset { path },
        Kind::Strip { path },
    ];
    match (draw.from(1, 100), topology) {
        (1..=20, _) => draw.one_of(&of_agent),
        (21..=32, Topology::Direct) => Kind::FarLinkDown { path },
        (_, Topology::Direct) | (21..=60, _) => draw.one_of(&of_link),
        (61..=75, _) if nat => Kind::Rebind { path },
        _ => draw.one_of(&of_router),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn no_hardship_is_in_effect_after_the_last_step() {
        for seed in 1..=300 {
            let plan = Plan::draw(seed);
            let mut steps: Vec<_> = plan.hardships.iter().flat_map(Hardship::steps).collect();
            steps.sort_by_key(|(at_ms, _)| *at_ms);
            assert!(steps.iter().all(|(at_ms, _)| (FIRST_MS..=CALM_MS).contains(at_ms)), "{seed}");
            let mut in_effect = Vec::new();
            for (_, step) in steps {
                let (place, restored) = match step {
                    Step::Link { path, up } => (path, up),
                    Step::Address { path, there } => (10 + path, there),
                    Step::Routes { path, there } => (20 + path, there),
                    Step::FarLink { path, up } => (30 + path, up),
                    Step::Router { path, behaviour } => (40 + path, behaviour == Behaviour::Forward),
                    Step::EndAgent { .. } => (50, false),
                    Step::StartAgent => (50, true),
                    Step::Manager { kernel } => (51, !kernel),
                    Step::Forget { .. } => (52, true),
                };
                in_effect.retain(|other| *other != place);
                in_effect.extend((!restored).then_some(place));
            }
            assert_eq!(in_effect, [] as [usize; 0], "{seed}");
        }
    }
}
