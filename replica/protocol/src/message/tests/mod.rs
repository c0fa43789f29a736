//! The layouts, byte by byte; round trips; and that no bytes whatsoever make a decoder panic.

mod golden;
mod random;
