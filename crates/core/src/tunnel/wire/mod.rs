//! The tunnel's packets: GRE in UDP, what its key holds, and control messages.

pub mod control_message;
pub mod gre;
pub mod gre_key;
