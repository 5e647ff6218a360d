//! Tests of lint.
