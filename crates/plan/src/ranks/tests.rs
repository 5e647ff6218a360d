//! Tests of ranks.
