//! A tunnel that spreads any IP traffic over several paths. So far what goes
//! over the wire: [`gre`].

pub mod gre;
