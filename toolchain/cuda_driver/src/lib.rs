//! Finds libcuda at run time and counts the calls that pass.
