//! Effects on the real world as a whole node meets them: upstreams from files, reloaded, with secrets, over real sockets.

#[cfg(test)]
#[path = "effects/node.rs"]
mod node;
#[cfg(test)]
#[path = "effects/shop.rs"]
mod shop;

#[cfg(test)]
#[path = "effects/reload.rs"]
mod reload;
