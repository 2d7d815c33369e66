//! A tunnel that spreads any IP traffic over several paths. So far what goes
//! over the wire: [`gre`]; and what came before: [`replay`].

pub mod gre;
pub mod replay;
