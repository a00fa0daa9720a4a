//! Expressions, evaluated and refused.
