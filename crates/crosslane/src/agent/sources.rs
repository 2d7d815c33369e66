//! The agent's sources of observations. To add one: its [`Observer`] in `observe/`, its
//! keys in `config.rs`, and its entry here.

use super::config::Config;
use super::machine::trusted;
use crate::clock::Clock;
use crate::error::Result;
use crate::observe::Observer;
use crate::observe::admission::Admission;
use crate::observe::vanetza::Vanetza;

type Opened = Result<Box<dyn Observer>>;

pub struct Source {
    /// What it does, for notes to the user: "NAME works now".
    pub name: &'static str,
    /// Opens it; `None` if the configuration does not ask for it.
    pub open: fn(&Config, Clock) -> Option<Opened>,
}

pub const SOURCES: [Source; 1] = [Source { name: "listening for CAMs", open: vanetza }];

fn vanetza(config: &Config, clock: Clock) -> Option<Opened> {
    let observe = &config.observe;
    let address = *observe.vanetza.as_ref()?.get_ref();
    let (users, _) = trusted(&observe.vanetza_users);
    let admission = Admission::new(observe.vanetza_from.iter().copied(), users);
    let opened = Vanetza::open(
        address,
        admission,
        (config.senders(), config.roadside.is_some() || config.unit.is_some()),
        clock,
    );
    Some(opened.map(|observer| Box::new(observer) as _))
}
