// Package table prints tables on a terminal, for the commands of Steelyard. It knows nothing of what is in them.
package table
