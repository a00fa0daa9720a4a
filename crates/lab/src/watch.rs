//! x
/// x
pub struct Watch;
/// x
pub struct Broken;
