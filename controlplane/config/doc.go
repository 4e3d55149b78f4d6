// Package config reads the one YAML file of a control plane, checks it to the
// last key, and follows its changes while the program runs.
//
// It is called by the daemon (Load or NewWatcher, then Watcher.Run) and by "steelyard check" (Load). It does not depend
// on the packages that use the values, opens none of the files that the configuration names, and resolves no name: it
// refuses what is wrong in the text, the users of the values the rest. "steelyard check" adds a Check by the packages
// that read those files; its messages have their line in the text, too.
//
// # Messages
//
// The messages are the product. Each problem is one line, FILE:LINE:COLUMN: PATH: the text that is wrong and why: what
// to write instead; all problems of a file come at once, sorted by line, at most 20 of them shown. A file in
// testdata/bad and its expected message are how a new check is added.
//
// # Schema
//
// The tags of the structs in config.go hold keys, defaults, bounds and words, and everything else follows from them:
// the decoder applies them, a test compares the comments and steelyard.example.yaml with them. Checks of one value
// against another are in check.go, endpoints.go and queue.go. Defaults come first, the file goes over them, then all is
// checked; the only default that depends on another key is a timeout, which is at most 4/5 of its interval.
//
// # YAML
//
// The file is one document of at most 1 MiB. Unknown, repeated and empty keys, values of another type, and numbers
// without their unit are refused, never guessed. Anchors, aliases and merges (<<) are allowed, so that clusters can
// share a section; together they may stand for at most 10,000 values beyond those written out.
//
// # Reload
//
// A file that never ends, such as a pipe or one on a mount that hangs, is a bad file (package internal/files).
//
// A Watcher reads the file again when its folder changes (100 ms after the last change, at the latest 1 s after the
// first), when it is asked to by a signal, and every 5 s in any case. What counts is the content, by its hash: a touch
// changes nothing. A bad file, or one that cannot be applied, is reported once and the running configuration stays.
package config
