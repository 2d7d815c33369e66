//! The events of a run, and the lines of `events.jsonl`: JSON objects
//! (`docs/reference/records.md`).

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use crosslane_core::actuator::{self, EndpointCommand};
use crosslane_core::agent::Output;
use crosslane_core::mptcp::{Command, Event, Subflow, Token};
use crosslane_core::path::PathId;
use crosslane_core::reason::Reason;
use crosslane_core::time::Instant;
use crosslane_core::wanted::Order;
use crosslane_sim::simulation::{Side, SlotChange};
use serde_json::{Map, Value, json};

use crate::trials;

/// An event of a run.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// An output of the simulated agent.
    Agent(Output),
    /// A line that an agent of the drive wrote.
    Line(Value),
    /// A roadside unit took or left a slot of the simulated agent.
    Slot(SlotChange),
    /// An event of a kernel's path manager.
    Kernel(Side, Event),
    /// Events of a kernel were lost, and why.
    KernelFault(Side, String),
    /// The run is invalid, and why.
    Invalid(String),
}

impl RunEvent {
    /// The line of an event; `names` and `addresses` are those of the vehicle's paths
    /// in the order of their ids.
    pub fn line(self, at: Instant, names: &[String], addresses: &[IpAddr]) -> Value {
        match self {
            RunEvent::Agent(output) => agent_event(at, &output, None, names),
            RunEvent::Slot(SlotChange { path, station, slot, opened, reason }) => {
                let unit = names.get(usize::from(path.0)).map_or("?", String::as_str);
                line(at, "agent", "roadside", slot_fields(opened, (unit, station), slot, &reason))
            }
            RunEvent::Line(line) => line,
            RunEvent::Kernel(side, event) => kernel_event(at, side, &event, names, addresses),
            RunEvent::KernelFault(side, reason) => {
                line(at, "kernel", "fault", json!({ "reason": reason, "side": name_of(side) }))
            }
            RunEvent::Invalid(reason) => line(at, "run", "invalid", json!({ "reason": reason })),
        }
    }
}

/// A line; `fields` must be an object.
pub fn line(at: Instant, source: &str, event: &str, mut fields: Value) -> Value {
    fields["t_s"] = json!(at.as_secs_f64());
    fields["source"] = json!(source);
    fields["event"] = json!(event);
    fields
}

/// The line of an agent's output, with the error of a failed command; `names`
/// are those of the paths.
pub fn agent_event(at: Instant, output: &Output, error: Option<&dyn Display>, names: &[String]) -> Value {
    let name = |path: &PathId| names.get(usize::from(path.0)).map_or("?", String::as_str);
    let (event, fields) = match output {
        Output::Belief { path, belief, reason } => {
            ("belief", with_reason(json!({ "path": name(path), "belief": belief.name() }), reason))
        }
        Output::Decision { path, state, was, reason } => {
            let fields = json!({ "path": name(path), "state": state.name(), "was": was.name() });
            ("decision", with_reason(fields, reason))
        }
        Output::ClassDecision { class, path, state, was, reason } => {
            let fields = json!({ "class": class.0, "path": name(path), "state": state.name(), "was": was.name() });
            ("class_decision", with_reason(fields, reason))
        }
        Output::Admission(admission) => {
            let fields = json!({
                "object": admission.number,
                "deadline_s": admission.deadline.as_secs_f64(),
                "predicted_s": admission.best.map(|best| best.as_secs_f64()),
                "expected_s": admission.expected.map(|expected| expected.as_secs_f64()),
                "can_be_met": admission.can_be_met()
            });
            ("admission", fields)
        }
        Output::Order { order, reason } => {
            let order = named(order, &name);
            ("order", with_reason(json!({ "order": order }), reason))
        }
        Output::Trial(trial) => {
            let [a, b] = &trial.paths;
            ("trial", trials::fields(trial, [name(a), name(b)]))
        }
        Output::Echo(path, number) => ("echo", json!({ "path": name(path), "number": number })),
        Output::EchoUnanswered { path, reason } => ("echo", with_reason(json!({ "path": name(path) }), reason)),
        Output::Notice(notice) => ("notice", json!({ "rule": notice.name(), "reason": notice.to_string() })),
        Output::Alarm { path, alarm } => {
            ("alarm", json!({ "path": name(path), "kind": alarm.kind.name(), "false_positive": alarm.false_positive }))
        }
        Output::Command(actuator::Command::Steer(steering)) => {
            let states: Vec<&str> = steering.states.iter().map(|state| state.name()).collect();
            let order = named(&steering.order, &name);
            ("steering", json!({ "states": states, "order": order, "reasons": steering.reasons }))
        }
        Output::Command(actuator::Command::Endpoint(command)) => {
            let mut fields = of_endpoint(command);
            fields["error"] = json!(error.map(ToString::to_string));
            ("endpoint", fields)
        }
        Output::Command(actuator::Command::Mptcp(path, command)) => {
            let mut fields = of_command(command);
            fields["path"] = json!(name(path));
            fields["error"] = json!(error.map(ToString::to_string));
            ("command", fields)
        }
    };
    line(at, "agent", event, fields)
}

/// The names of the paths in an order, none by the user's preference, and null if there is no order.
fn named<'a>(order: &Order, name: &impl Fn(&PathId) -> &'a str) -> Option<Vec<&'a str>> {
    (*order != Order::Free).then(|| order.paths().iter().map(name).collect())
}

/// The fields of a line about a roadside unit, by name and station id, that took
/// (`opened`) or left a slot.
pub fn slot_fields(opened: bool, (unit, station): (&str, u32), slot: u8, reason: &Reason) -> Value {
    let action = if opened { "open" } else { "close" };
    with_reason(json!({ "unit": unit, "station": station, "slot": slot, "action": action }), reason)
}

fn kernel_event(at: Instant, side: Side, event: &Event, names: &[String], addresses: &[IpAddr]) -> Value {
    let of_subflow = |token: &Token, subflow: &Subflow, error: Option<u8>| {
        let vehicle = match side {
            Side::Vehicle => subflow.local,
            Side::Server => subflow.remote,
        };
        let place = addresses.iter().position(|known| *known == vehicle.ip().to_canonical());
        json!({
            "token": token.0, "path": place.map(|place| &names[place]), "local": subflow.local.to_string(),
            "remote": subflow.remote.to_string(), "backup": subflow.backup, "error": error
        })
    };
    let of_address = |token: &Token, remote: Option<SocketAddr>| json!({ "token": token.0, "remote": remote });
    let (event, mut fields) = match event {
        Event::Created { token, subflow, .. } => ("created", of_subflow(token, subflow, None)),
        Event::Established { token, subflow, .. } => ("established", of_subflow(token, subflow, None)),
        Event::Closed { token } => ("closed", json!({ "token": token.0 })),
        Event::Announced { token, remote, .. } => ("announced", of_address(token, Some(*remote))),
        Event::Removed { token, .. } => ("removed", of_address(token, None)),
        Event::SubflowEstablished { token, subflow } => ("subflow_established", of_subflow(token, subflow, None)),
        Event::SubflowClosed { token, subflow, error } => ("subflow_closed", of_subflow(token, subflow, Some(*error))),
        Event::SubflowPriority { token, subflow } => ("subflow_priority", of_subflow(token, subflow, None)),
        Event::ListenerCreated { local } => ("listener_created", json!({ "local": local })),
        Event::ListenerClosed { local } => ("listener_closed", json!({ "local": local })),
    };
    fields["side"] = json!(name_of(side));
    line(at, "kernel", event, fields)
}

/// The name of a side in records.
fn name_of(side: Side) -> &'static str {
    match side {
        Side::Vehicle => "vehicle",
        Side::Server => "server",
    }
}

fn of_endpoint(command: &EndpointCommand) -> Value {
    match command {
        EndpointCommand::Add { id, address, backup, .. } => {
            json!({ "command": "add", "id": id.0, "address": address, "backup": backup })
        }
        EndpointCommand::SetBackup { address, backup } => {
            json!({ "command": "set_backup", "address": address, "backup": backup })
        }
        EndpointCommand::RepeatBackup { address, backup } => {
            json!({ "command": "repeat_backup", "address": address, "backup": backup })
        }
        EndpointCommand::Remove { id } => json!({ "command": "remove", "id": id.0 }),
    }
}

fn of_command(command: &Command) -> Value {
    let (name, token, backup) = match command {
        Command::CreateSubflow { token, backup, .. } => ("create", token, Some(*backup)),
        Command::CancelJoin { token, .. } => ("cancel_join", token, None),
        Command::DestroySubflow { token, .. } => ("destroy", token, None),
        Command::SetBackup { token, backup, .. } => ("set_backup", token, Some(*backup)),
        Command::Announce { token, .. } => ("announce", token, None),
        Command::Withdraw { token, .. } => ("withdraw", token, None),
    };
    json!({ "command": name, "token": token.0, "backup": backup })
}

fn with_reason(mut fields: Value, reason: &Reason) -> Value {
    let inputs: Map<String, Value> =
        reason.inputs.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    fields["rule"] = json!(reason.rule);
    fields["reason"] = json!(reason.text());
    fields["inputs"] = Value::Object(inputs);
    fields
}
