//! The engine against real servers: the contracts, and what only this engine can do.

mod contract;
mod copies;
mod faults;
mod history;
mod listing;
mod model;
mod openings;
mod stores;
