//! Tests of the parts of `hardship` that need no namespaces: the plans of seeds, the packet
//! changes of routers, and that each rule can be broken. `hardship` itself has no test
//! harness.

#![allow(dead_code, clippy::unwrap_used)]

#[path = "hardship/beyond.rs"]
mod beyond;
#[path = "hardship/exchange.rs"]
mod exchange;
#[path = "hardship/hardships.rs"]
mod hardships;
#[path = "hardship/packet.rs"]
mod packet;
#[path = "hardship/plan.rs"]
mod plan;
#[path = "hardship/programs.rs"]
mod programs;
#[path = "hardship/verdict.rs"]
mod verdict;
