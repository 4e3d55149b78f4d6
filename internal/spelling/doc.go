// Package spelling finds the word that was probably meant: a key of the configuration, a command, a cluster, a label.
//
// It is pure, and has no list of words itself. Callers write their messages, except for [DidYouMean], the part of a
// sentence that most of them end with.
package spelling
