//! The socket's rules.

mod agent;
mod demands;
mod tunnel;
