//! The wire format: GRE in UDP, the fields of its key, and control messages.

pub mod control_message;
pub mod gre;
pub mod gre_key;
