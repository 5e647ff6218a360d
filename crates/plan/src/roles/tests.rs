//! Tests of roles.
