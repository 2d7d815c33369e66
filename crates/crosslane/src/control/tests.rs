//! The socket's rules.

mod demands;
mod tunnel;
