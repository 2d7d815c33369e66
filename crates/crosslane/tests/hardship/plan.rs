//! The plan of a seed: topology, connections and hardships.

use serde::{Deserialize, Serialize};

use super::hardships::{self, Hardship};

/// Seeds of the short form, which `make test` runs; together they cover all kinds.
pub const SHORT: [u64; 11] = [5, 11, 12, 14, 16, 17, 21, 27, 29, 31, 35];
/// Hardships begin after this time of a run.
pub const FIRST_MS: u64 = 1_500;
/// All hardships are over at this time of a run.
pub const CALM_MS: u64 = 7_500;
/// Paced connections have written their last byte at this time of a run.
pub const PACED_UNTIL_MS: u64 = 9_000;
/// A connection that has not ended at this time of a run hangs: 10 s after the last hardship.
pub const DEADLINE_MS: u64 = CALM_MS + 10_000;
/// Maximum number of connections of a seed.
pub const MAX_CONNECTIONS: u32 = 300;
/// Bytes a second that all paced connections of a seed offer together.
const OFFERED_BYTES_S: u64 = 600_000;

/// Random numbers that depend only on the seed, on every machine (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// A separate generator for each seed.
    pub fn new(seed: u64) -> Draw {
        // Mixed once; otherwise adjacent seeds would give shifted sequences.
        Draw(Draw(seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `min` to `max`, inclusive.
    pub fn from(&mut self, min: u64, max: u64) -> u64 {
        min + self.next() % (max - min + 1)
    }

    /// True with a probability of `percent` %.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of these values.
    pub fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.from(0, from.len() as u64 - 1) as usize]
    }
}

/// Connection between the vehicle and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Topology {
    /// A veth pair for each path: the server detects the loss of carrier.
    Direct,
    /// A router of this test for each path, on TUN devices.
    Routed,
}

/// One path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathPlan {
    /// One-way delay (routed only).
    pub delay_ms: u64,
    /// Rate in each direction (routed only).
    pub rate_mbit_s: u64,
    /// Its router rewrites addresses and ports (routed only).
    pub nat: bool,
}

/// Traffic pattern of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The client writes; the server sends after it has received everything.
    Up,
    /// The client writes and closes its direction; the server sends after the end of the stream.
    HalfClosed,
    /// The server writes; the client sends after it has received everything.
    Down,
    /// Messages that the server answers, one after another.
    PingPong,
}

/// One connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// Number of the connection.
    pub id: u32,
    /// Traffic pattern.
    pub kind: Kind,
    /// Time of the connect call, in ms of the run.
    pub begin_ms: u64,
    /// Bytes in each direction that the pattern uses.
    pub bytes: u64,
    /// Bytes of a write, or of a message.
    pub chunk: u32,
    /// Time between writes; 0 is without pause.
    pub tick_ms: u32,
    /// Time at which the client of a ping-pong stops.
    pub until_ms: u64,
    /// The server sends a wrong byte, which the test must find.
    pub spoiled: bool,
}

/// The plan of a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Connection between the vehicle and the server.
    pub topology: Topology,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Mode `backup` instead of `aggregate`.
    pub backup: bool,
    /// The server has Linux's default limits (2 further subflows) instead of 8.
    pub default_limits: bool,
    /// The agent starts after most connections.
    pub late_agent: bool,
    /// Two or three paths; the first is preferred.
    pub paths: Vec<PathPlan>,
    /// 1 to [`MAX_CONNECTIONS`].
    pub connections: Vec<Traffic>,
    /// Third-party programs (curl, iperf3) take part where they are installed.
    pub others: bool,
    /// Sorted by start.
    pub hardships: Vec<Hardship>,
    /// A connection that has not ended at this time hangs.
    pub deadline_ms: u64,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let mut draw = Draw::new(seed);
        let topology = if draw.chance(40) { Topology::Direct } else { Topology::Routed };
        let paths: Vec<PathPlan> = (0..draw.from(2, 3)).map(|_| path(&mut draw, topology)).collect();
        let (ipv6, backup) = (draw.chance(25), draw.chance(50));
        let (default_limits, late_agent) = (draw.chance(40), draw.chance(15));
        let number = match draw.from(1, 10) {
            1..=3 => draw.from(1, 2),
            4..=6 => draw.from(3, 10),
            7..=8 => draw.from(11, 50),
            9 => draw.from(51, 120),
            _ => draw.from(121, u64::from(MAX_CONNECTIONS)),
        };
        let mut connections: Vec<Traffic> = (0..number as u32).map(|id| traffic(&mut draw, id, number)).collect();
        // With hundreds of connections one change uses the command budget of many.
        let max = match number {
            0..=50 => 8,
            51..=120 => 4,
            _ => 3,
        };
        let others = topology == Topology::Routed && number <= 10 && !ipv6 && draw.chance(50);
        let hardships = hardships::draw(&mut draw, topology, &paths, max);
        connections.iter_mut().for_each(|traffic| close_half(&mut draw, traffic));
        Plan {
            seed,
            topology,
            ipv6,
            backup,
            default_limits,
            late_agent,
            paths,
            connections,
            others,
            hardships,
            deadline_ms: DEADLINE_MS,
        }
    }

    /// True if an agent manages the connections all the time.
    pub fn is_managed_throughout(&self) -> bool {
        let interrupts = |hardship: &Hardship| {
            matches!(
                hardship.kind,
                hardships::Kind::AgentKilled | hardships::Kind::AgentEnded | hardships::Kind::KernelManager
            )
        };
        !self.late_agent && !self.hardships.iter().any(interrupts)
    }

    /// A readable description in one line.
    pub fn describe(&self) -> String {
        let of = |kind| self.connections.iter().filter(|traffic| traffic.kind == kind).count();
        format!(
            "{:?}, {} paths{}, {}, {}, {} up {} half-closed {} down {} ping-pong{}{}{}",
            self.topology,
            self.paths.len(),
            if self.paths.iter().any(|path| path.nat) { " (NAT)" } else { "" },
            if self.ipv6 { "IPv6" } else { "IPv4" },
            if self.backup { "backup" } else { "aggregate" },
            of(Kind::Up),
            of(Kind::HalfClosed),
            of(Kind::Down),
            of(Kind::PingPong),
            if self.others { ", curl and iperf3" } else { "" },
            if self.default_limits { ", server's limit 2" } else { "" },
            if self.late_agent { ", agent late" } else { "" },
        )
    }
}

fn path(draw: &mut Draw, topology: Topology) -> PathPlan {
    let nat = topology == Topology::Routed && draw.chance(30);
    PathPlan { delay_ms: draw.from(2, 40), rate_mbit_s: draw.from(15, 50), nat }
}

fn traffic(draw: &mut Draw, id: u32, number: u64) -> Traffic {
    let kind = draw.one_of(&[Kind::Up, Kind::Down, Kind::PingPong]);
    let begin_ms = if draw.chance(80) { draw.from(0, 1_300) } else { draw.from(1_300, CALM_MS - 1_000) };
    // Some are short, so that they end during hardships.
    let until_ms = if draw.chance(75) { PACED_UNTIL_MS } else { begin_ms + draw.from(50, 1_500) };
    let tick_ms: u64 = match number {
        0..=20 => draw.one_of(&[20, 50, 400]),
        21..=100 => draw.one_of(&[100, 1_000]),
        _ => draw.one_of(&[500, 2_000]),
    };
    let ticks = ((until_ms - begin_ms) / tick_ms).max(1);
    let is_unpaced = kind != Kind::PingPong && number <= 10 && draw.chance(25);
    let (chunk, bytes, tick_ms) = match kind {
        _ if is_unpaced => (65_536, 65_536 * draw.from(40, 120), 0),
        Kind::PingPong => (200, 200 * ticks, tick_ms),
        _ => {
            let chunk = (OFFERED_BYTES_S / number * tick_ms / 1000).clamp(200, 20_000);
            (chunk, chunk * ticks, tick_ms)
        }
    };
    Traffic { id, kind, begin_ms, bytes, chunk: chunk as u32, tick_ms: tick_ms as u32, until_ms, spoiled: false }
}

/// Some uploads close their direction, most of them before the hardships end.
fn close_half(draw: &mut Draw, traffic: &mut Traffic) {
    if traffic.kind != Kind::Up || !draw.chance(40) {
        return;
    }
    traffic.kind = Kind::HalfClosed;
    if traffic.tick_ms > 0 {
        let for_ms = draw.from(50, CALM_MS - traffic.begin_ms);
        traffic.bytes = u64::from(traffic.chunk) * (for_ms / u64::from(traffic.tick_ms)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_plan_and_two_seeds_different_plans() {
        let text = |seed| serde_json::to_string(&Plan::draw(seed)).unwrap();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn the_short_form_covers_every_kind() {
        let plans = SHORT.map(Plan::draw);
        let has = |what: &dyn Fn(&Plan) -> bool| plans.iter().any(what);
        for topology in [Topology::Direct, Topology::Routed] {
            for backup in [false, true] {
                assert!(has(&|plan| plan.topology == topology && plan.backup == backup), "{topology:?} {backup}");
            }
        }
        assert!(has(&|plan| plan.ipv6) && has(&|plan| plan.late_agent) && has(&|plan| plan.others));
        assert!(has(&|plan| plan.default_limits) && has(&|plan| plan.is_managed_throughout()));
        assert!(has(&|plan| plan.connections.len() == 1) && has(&|plan| plan.connections.len() > 120));
        assert!(has(&|plan| plan.connections.iter().any(|traffic| traffic.kind == Kind::HalfClosed)));
        for name in hardships::Kind::NAMES {
            assert!(has(&|plan| plan.hardships.iter().any(|hardship| hardship.kind.name() == name)), "{name}");
        }
    }

    #[test]
    fn a_hundred_seeds_cover_every_kind_several_times() {
        let plans: Vec<Plan> = (1..=100).map(Plan::draw).collect();
        let some = |what: fn(&Plan) -> bool| plans.iter().filter(|plan| what(plan)).count() >= 5;
        assert!(some(|plan| plan.topology == Topology::Direct) && some(|plan| plan.topology == Topology::Routed));
        assert!(some(|plan| plan.ipv6) && some(|plan| plan.backup) && some(|plan| !plan.backup));
        assert!(some(|plan| plan.default_limits) && some(|plan| plan.late_agent) && some(|plan| plan.others));
        assert!(some(|plan| plan.connections.len() == 1) && some(|plan| plan.connections.len() > 120));
        assert!(plans.iter().all(|plan| (1..=MAX_CONNECTIONS as usize).contains(&plan.connections.len())));
        for name in hardships::Kind::NAMES {
            let has = |plan: &&Plan| plan.hardships.iter().any(|hardship| hardship.kind.name() == name);
            assert!(plans.iter().filter(has).count() >= 3, "{name}");
        }
    }
}
