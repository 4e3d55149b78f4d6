// Package console is what an operator asks of a running Steelyard in a terminal: the commands status, top, explain,
// events, diff, drain, undrain, pin and log-level.
//
// A [Client] asks the admin API. Each command makes a value of the answers, which is printed as a table for people, or
// as JSON or YAML with the keys of docs/admin-api.md. Words and verdicts are those of the server: incidents, reasons
// and sentences are printed, not made here, so that page and terminal never disagree.
//
// # Tables
//
// Columns are as wide as what is in them. A table fits into the terminal where it can: the last column is cut to its
// width, and what is not a terminal gets everything. Unknown is "-", and never 0.
package console
