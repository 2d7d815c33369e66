//! The agent's metrics in the text format of OpenMetrics, which Prometheus reads (`docs/reference/agent-metrics.md`).

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::control::protocol::UNITS;
use crate::control::report::{AgentStatus, PathReport, VolumePeriodReport};
use crate::control::status::PathStatus;

/// Media type of the text (OpenMetrics 1.0, section "Overall Structure").
pub const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metric. Paths to roadside units are labelled by their slot, so that a vehicle that passes a thousand units has no
/// more labels than slots; nothing is labelled by connection.
struct Metric {
    /// Its name, without the unit and `_total`.
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    values: fn(&AgentStatus) -> Vec<Value>,
}

/// Labels and a value.
type Value = (Vec<(&'static str, String)>, f64);

use MetricType::{Counter, Gauge};

const LIVENESS: [&str; 5] = ["unknown", "up", "probing", "down", "recovering"];

/// All metrics.
static METRICS: [Metric; 23] = [
    metric("crosslane_agent_info", "1, with version, strategy and mode of the agent", None, Gauge, |agent| {
        let strategy = agent.strategy.clone().unwrap_or_default();
        vec![(
            vec![("version", agent.version.clone()), ("strategy", strategy), ("mode", agent.mode.name().into())],
            1.0,
        )]
    }),
    metric("crosslane_uptime", "time since the agent's start", Some(Unit::Seconds), Gauge, |agent| one(agent.uptime_s)),
    metric(
        "crosslane_longest_answer",
        "processor time of the longest answer to a request",
        Some(Unit::Seconds),
        Gauge,
        |agent| one(agent.longest_answer_ms / 1e3),
    ),
    metric("crosslane_connections", "connections that the agent manages", None, Gauge, |agent| {
        one(agent.connections as f64)
    }),
    metric(
        "crosslane_problems",
        "things that do not work now, as `crosslane status` lists them",
        None,
        Gauge,
        |agent| one(agent.problems.len() as f64),
    ),
    metric("crosslane_path_state", "1 for the wanted state of the path, 0 for the others", None, Gauge, |agent| {
        of_set(agent, "state", &["active", "backup", "closed"], |path| &path.state)
    }),
    metric(
        "crosslane_path_belief",
        "1 for what the agent believes of the path, 0 for the rest",
        None,
        Gauge,
        |agent| of_set(agent, "belief", &["unknown", "good", "fading", "lost", "stalled"], |path| &path.belief),
    ),
    metric(
        "crosslane_path_preferred",
        "1 if a user lets the path carry alone while it is good",
        None,
        Gauge,
        |agent| {
            let is_preferred = |path: &PathReport| agent.preferred.as_ref().is_some_and(|one| one.path == path.path);
            of_paths(agent, |path| Some(f64::from(u8::from(is_preferred(path)))))
        },
    ),
    metric("crosslane_path_connections", "connections with a subflow over the path", None, Gauge, |agent| {
        of_paths(agent, |path| Some(path.connections as f64))
    }),
    metric("crosslane_path_signal_dbm", "last received signal strength, in dBm", None, Gauge, |agent| {
        of_paths(agent, |path| path.signal_dbm)
    }),
    metric("crosslane_path_signal_age", "time since that signal", Some(Unit::Seconds), Gauge, |agent| {
        of_paths(agent, |path| path.signal_age_s)
    }),
    metric("crosslane_path_rtt", "smoothed RTT, of the last measurement", Some(Unit::Seconds), Gauge, |agent| {
        of_paths(agent, |path| path.rtt_ms.map(|rtt_ms| rtt_ms / 1e3))
    }),
    metric("crosslane_path", "bytes of the path's interface, of all programs", Some(Unit::Bytes), Counter, |agent| {
        let mut values = Vec::new();
        for path in &agent.paths {
            for (direction, bytes) in [("sent", path.sent_bytes), ("received", path.received_bytes)] {
                let labels = vec![("path", label(agent, path)), ("direction", direction.into())];
                values.extend(bytes.map(|bytes| (labels, bytes as f64)));
            }
        }
        values
    }),
    metric(
        "crosslane_path_echo",
        "IP bytes of echo requests over the path, and of their answers",
        Some(Unit::Bytes),
        Counter,
        |agent| {
            let mut values = Vec::new();
            for (path, echo) in agent.paths.iter().filter_map(|path| Some((path, path.echo?))) {
                for (direction, bytes) in [("sent", echo.sent_bytes), ("received", echo.received_bytes)] {
                    values.push((vec![("path", label(agent, path)), ("direction", direction.into())], bytes as f64));
                }
            }
            values
        },
    ),
    metric(
        "crosslane_path_volume_used",
        "bytes of the path that count for a limited period",
        Some(Unit::Bytes),
        Gauge,
        |agent| of_periods(agent, |of| of.used_bytes),
    ),
    metric(
        "crosslane_path_volume_limit",
        "bytes from which on the path carries nothing in the period",
        Some(Unit::Bytes),
        Gauge,
        |agent| of_periods(agent, |of| of.limit_bytes),
    ),
    metric(
        "crosslane_path_volume_level",
        "1 for what is left of the path's volume, 0 for the rest",
        None,
        Gauge,
        |agent| {
            let limited = agent.paths.iter().filter_map(|path| Some((path, &path.volume.as_ref()?.level)));
            let levels = ["available", "scarce", "exhausted"];
            members(agent, "level", &levels, limited)
        },
    ),
    metric("crosslane_tunnel_peers_seen", "peers from which a packet has arrived within 10 s", None, Gauge, |agent| {
        agent.tunnel.iter().map(|tunnel| (Vec::new(), tunnel.peers_seen as f64)).collect()
    }),
    metric(
        "crosslane_tunnel_path_liveness",
        "1 for the liveness of a vehicle's path, 0 for the rest",
        None,
        Gauge,
        |agent| {
            of_tunnel(agent, "liveness", |path| {
                LIVENESS.map(|one| (one, f64::from(u8::from(path.liveness == one)))).into()
            })
        },
    ),
    metric("crosslane_tunnel_path_rate_bytes_per_second", "delivery rate of a vehicle's path", None, Gauge, |agent| {
        of_tunnel_paths(agent, |path| Some(path.rate_mbit_s? * 1e6 / 8.0))
    }),
    metric(
        "crosslane_tunnel_path_min_rtt",
        "recent minimum RTT of a vehicle's path",
        Some(Unit::Seconds),
        Gauge,
        |agent| of_tunnel_paths(agent, |path| Some(path.min_rtt_ms? / 1e3)),
    ),
    metric("crosslane_tunnel_path", "bytes of datagrams sent, with all headers", Some(Unit::Bytes), Counter, |agent| {
        of_tunnel(agent, "kind", |path| {
            let data = path.sent_bytes.saturating_sub(path.control_bytes + path.copied_bytes);
            vec![("data", data as f64), ("control", path.control_bytes as f64), ("copied", path.copied_bytes as f64)]
        })
    }),
    metric("crosslane_tunnel_path_packets", "packets and probes sent whose outcome is known", None, Counter, |agent| {
        of_tunnel(agent, "outcome", |path| vec![("delivered", path.delivered as f64), ("lost", path.lost as f64)])
    }),
];

const fn metric(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    values: fn(&AgentStatus) -> Vec<Value>,
) -> Metric {
    Metric { name, help, unit, kind, values }
}

fn one(value: f64) -> Vec<Value> {
    vec![(Vec::new(), value)]
}

fn of_paths(agent: &AgentStatus, value: impl Fn(&PathReport) -> Option<f64>) -> Vec<Value> {
    let labelled = |path: &PathReport| Some((vec![("path", label(agent, path))], value(path)?));
    agent.paths.iter().filter_map(labelled).collect()
}

/// One value for each of a set, of which a path has one.
fn of_set(agent: &AgentStatus, name: &'static str, set: &[&str], present: fn(&PathReport) -> &String) -> Vec<Value> {
    members(agent, name, set, agent.paths.iter().map(|path| (path, present(path))))
}

/// The same of these paths, each with the one that it has.
fn members<'a>(
    agent: &AgentStatus,
    name: &'static str,
    set: &[&str],
    paths: impl Iterator<Item = (&'a PathReport, &'a String)>,
) -> Vec<Value> {
    let of = |(path, present): (&PathReport, &String), member: &str| {
        let labels = vec![("path", label(agent, path)), (name, member.to_owned())];
        (labels, f64::from(u8::from(present == member)))
    };
    paths.flat_map(|path| set.iter().map(move |member| of(path, member))).collect()
}

/// A value for each limited period of each path.
fn of_periods(agent: &AgentStatus, value: fn(&VolumePeriodReport) -> u64) -> Vec<Value> {
    let of = |path: &PathReport, of: &VolumePeriodReport| {
        let labels = vec![("path", label(agent, path)), ("period", of.period.clone())];
        (labels, value(of) as f64)
    };
    let periods = |path: &'_ PathReport| {
        path.volume.iter().flat_map(|volume| &volume.periods).map(|one| of(path, one)).collect::<Vec<_>>()
    };
    agent.paths.iter().flat_map(periods).collect()
}

fn of_tunnel_paths(agent: &AgentStatus, value: fn(&PathStatus) -> Option<f64>) -> Vec<Value> {
    let labelled = |path: &PathStatus| Some((vec![("path", path.path.clone())], value(path)?));
    agent.tunnel.iter().flat_map(|tunnel| &tunnel.paths).filter_map(labelled).collect()
}

/// Several values of each path of a vehicle's tunnel, by another label.
fn of_tunnel(
    agent: &AgentStatus,
    name: &'static str,
    values: fn(&PathStatus) -> Vec<(&'static str, f64)>,
) -> Vec<Value> {
    let paths = agent.tunnel.iter().flat_map(|tunnel| &tunnel.paths);
    let of = |path: &PathStatus| {
        let labels = |label: &str| vec![("path", path.path.clone()), (name, label.to_owned())];
        values(path).into_iter().map(|(label, value)| (labels(label), value)).collect::<Vec<_>>()
    };
    paths.flat_map(of).collect()
}

/// Name of a path; of one to a roadside unit its slot.
fn label(agent: &AgentStatus, path: &PathReport) -> String {
    let slot = agent.units.iter().find(|unit| unit.name == path.path).and_then(|unit| unit.slot);
    slot.map_or_else(|| path.path.clone(), |slot| format!("{UNITS}-{slot}"))
}

/// The text.
pub fn encode(agent: Arc<AgentStatus>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(agent)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Snapshot(Arc<AgentStatus>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &METRICS {
            let mut family = encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)?;
            for (labels, value) in (metric.values)(&self.0) {
                let mut of_labels = family.encode_family(&labels)?;
                match metric.kind {
                    Counter => of_labels.encode_counter::<NoLabelSet, _, f64>(&value, None)?,
                    _ => of_labels.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn path(name: &str) -> Value {
        let reason = json!({ "rule": "", "text": "", "inputs": {} });
        json!({
            "path": name, "interface": name, "address": null, "preference": 1, "state": "active", "state_since_s": 1.0,
            "state_reason": reason, "belief": "good", "belief_since_s": 1.0, "belief_reason": reason,
            "signal_dbm": -61.5, "signal_age_s": 0.1, "rtt_ms": 12.5, "connections": 2, "sent_bytes": 5,
            "received_bytes": null
        })
    }

    /// With a volume by month.
    fn limited(name: &str) -> Value {
        let month = json!({
            "period": "month", "used_bytes": 7, "soft_bytes": 9, "limit_bytes": 10, "resets": "2026-12-01"
        });
        let mut path = path(name);
        path["volume"] = json!({ "level": "available", "periods": [month] });
        path["echo"] = json!({ "sent_bytes": 56, "received_bytes": 28, "rtt_ms": 25.0, "answered_s": 0.1 });
        path
    }

    #[test]
    fn a_path_to_a_unit_is_labelled_by_its_slot_and_what_is_not_measured_is_left_out() {
        let unit = json!({
            "name": "rsu-700", "station": 700, "slot": 2, "kind": "vxlan", "belief": "good", "rssi_dbm": -60.0,
            "last_cam_s": 0.1, "has_tunnel": true, "liveness": null, "min_rtt_ms": null, "sent_bytes": 1,
            "received_bytes": 1
        });
        let of_tunnel = json!({
            "path": "lte", "wanted_state": "active", "liveness": "up", "reason": "", "rate_mbit_s": 8.0,
            "min_rtt_ms": null, "loss": 0.0, "sent_bytes": 100, "control_bytes": 10, "copied_bytes": 20,
            "delivered": 3, "lost": 1
        });
        let tunnel = json!({
            "interface": "crosslane0", "role": "vehicle", "encrypted": true, "peers": 1, "peers_seen": 1,
            "paths": [of_tunnel]
        });
        let status = json!({
            "version": "1", "pid": 7, "configuration": "", "uptime_s": 1.5, "strategy": "a\"b", "mode": "backup",
            "preferred": null, "connections": 2, "paths": [limited("lte"), path("rsu-700")], "tunnel": tunnel,
            "units": [unit], "problems": [], "changes": []
        });
        let text = encode(Arc::new(serde_json::from_value(status).unwrap()));
        for line in [
            "crosslane_path_bytes_total{path=\"lte\",direction=\"sent\"} 5.0",
            "crosslane_path_rtt_seconds{path=\"roadside-2\"} 0.0125",
            "crosslane_path_state{path=\"lte\",state=\"backup\"} 0.0",
            "crosslane_path_volume_used_bytes{path=\"lte\",period=\"month\"} 7.0",
            "crosslane_path_echo_bytes_total{path=\"lte\",direction=\"received\"} 28.0",
            "crosslane_path_volume_limit_bytes{path=\"lte\",period=\"month\"} 10.0",
            "crosslane_path_volume_level{path=\"lte\",level=\"available\"} 1.0",
            "crosslane_path_volume_level{path=\"lte\",level=\"exhausted\"} 0.0",
            "crosslane_tunnel_path_liveness{path=\"lte\",liveness=\"up\"} 1.0",
            "crosslane_tunnel_path_liveness{path=\"lte\",liveness=\"down\"} 0.0",
            "crosslane_tunnel_path_rate_bytes_per_second{path=\"lte\"} 1000000.0",
            "crosslane_tunnel_path_bytes_total{path=\"lte\",kind=\"data\"} 70.0",
            "crosslane_tunnel_path_bytes_total{path=\"lte\",kind=\"copied\"} 20.0",
            "crosslane_tunnel_path_packets_total{path=\"lte\",outcome=\"lost\"} 1.0",
            "crosslane_agent_info{version=\"1\",strategy=\"a\\\"b\",mode=\"backup\"} 1.0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        assert!(
            !text.contains("rsu-700")
                && !text.contains("crosslane_path_bytes_total{path=\"lte\",direction=\"received\"}")
                && !text.contains("crosslane_tunnel_path_min_rtt_seconds{")
                && text.ends_with("# EOF\n"),
            "{text}"
        );
    }
}
