//! The tunnel's input and output.

pub mod security;
