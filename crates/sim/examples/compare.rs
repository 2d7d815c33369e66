use crosslane_core::agent::Output;
use crosslane_core::time::Instant;
use crosslane_sim::metrics::{Context, metrics};
use crosslane_sim::records::{DecisionRow, RunRecords};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};
use std::collections::BTreeMap;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let scenario = Scenario::parse(&text, &args[1]).unwrap();
    let seeds: u64 = args[3].parse().unwrap();
    let names: Vec<String> = scenario.paths().iter().map(|p| p.name.to_string()).collect();
    let context = Context::of(&scenario, &names);
    let dump = args.get(4).is_some();
    for strategy in args[2].split(',') {
        let s = scenario.strategy(strategy).unwrap();
        let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let t = std::time::Instant::now();
        let mut events = 0;
        for seed in 1..=seeds {
            let mut sim =
                Simulation::new(&scenario, &s, seed, if dump { Detail::ALL } else { Detail::METRICS }).unwrap();
            sim.run_until(Instant::from_secs_f64(scenario.duration_s));
            let r = sim.finish();
            events += r.events;
            let decisions: Vec<DecisionRow> = r
                .said
                .iter()
                .filter_map(|(at, o)| match o {
                    Output::Decision { path, state, .. } => {
                        Some(DecisionRow { t_ns: at.as_nanos(), path: *path, state: *state })
                    }
                    _ => None,
                })
                .collect();
            let m = metrics(
                &RunRecords {
                    messages: &r.messages,
                    decisions: &decisions,
                    alarms: &r
                        .said
                        .iter()
                        .filter_map(|(at, o)| match o {
                            Output::Alarm { path, alarm } if alarm.wrong.is_none() => {
                                Some(crosslane_sim::records::AlarmRow {
                                    t_ns: at.as_nanos(),
                                    path: *path,
                                    was_false: None,
                                })
                            }
                            _ => None,
                        })
                        .collect::<Vec<_>>(),
                },
                &r.sums,
                &context,
            );
            for (k, v) in m {
                all.entry(k).or_default().push(v);
            }
            if dump {
                for p in &r.packets {
                    println!(
                        "{:.3} {:?} {} {:?} sf{} len{} seq{} ack{} fl{} dsn{:?} dack{:?} {} drop{:?}",
                        p.t_ns as f64 / 1e6,
                        p.delivered_ns.map(|d| d as f64 / 1e6),
                        names[p.path.0 as usize],
                        p.direction,
                        p.subflow.unwrap(),
                        p.payload_bytes,
                        p.tcp_seq,
                        p.tcp_ack,
                        p.tcp_flags,
                        p.dsn,
                        p.data_ack,
                        p.mptcp,
                        p.drop
                    );
                }
                for t in &r.tcp_info {
                    println!(
                        "INFO {:.2} {} cwnd {} unacked {} rtt {} notsent {} lost {} retr {}",
                        t.t_ns as f64 / 1e9,
                        names[t.path.0 as usize],
                        t.cwnd,
                        t.unacked,
                        t.rtt_us,
                        t.notsent_bytes,
                        t.lost,
                        t.total_retrans
                    );
                }
                for (at, o) in &r.said {
                    println!("SAID {:.6} {:?}", at.as_secs_f64(), o);
                }
                for (at, side, o) in &r.heard {
                    println!("HEARD {:.6} {:?} {:?}", at.as_secs_f64(), side, o);
                }
            }
        }
        let wall = t.elapsed().as_secs_f64();
        println!(
            "{strategy}: {:.0} sim-s/s, {:.2} Mevents/s",
            seeds as f64 * scenario.duration_s / wall,
            events as f64 / wall / 1e6
        );
        for (k, mut v) in all {
            v.sort_by(f64::total_cmp);
            println!("   {k:28} median {:10.3}  min {:10.3} max {:10.3}", v[v.len() / 2], v[0], v[v.len() - 1]);
        }
    }
}
