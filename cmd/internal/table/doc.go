// Package table prints tables, numbers and texts on a terminal, for the commands of Steelyard. It knows nothing of what
// they are about.
package table
