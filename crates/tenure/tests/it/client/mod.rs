//! `tenure call`, `tenure tools` and `tenure jar`: real processes against real servers, over HTTP and over pipes.

mod calling;
mod choosing;
mod eras;
mod going_on;
mod home;
mod many;
mod texts;
mod wire;
