//! onegraph's host side.
