// Package spelling finds the word that was probably meant: a key of the configuration, a command, a cluster, a label.
//
// It is pure, and knows no list of words by itself. Messages are up to the callers, but for [DidYouMean], the part of a
// sentence that most of them end with.
package spelling
