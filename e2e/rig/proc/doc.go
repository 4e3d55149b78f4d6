// Package proc runs real programs for tests and for the demo: Envoy, redis-server, Triton and Steelyard's own binary,
// each as a child in a process group of its own, with its output in a file.
//
// What it is for: a caller that starts a process here can wait until it serves, stop it in order, kill it, freeze it,
// and never leaves it behind. Stop sends SIGTERM, waits for the grace period and then kills the whole group; when the
// caller itself dies, even suddenly, the kernel kills the children (Linux).
//
// What it is not: a supervisor. Nothing is restarted, and nothing here decides
// what a process should do. It does not import package testing, because the
// demo uses it too; the wrappers for tests are in proc/proctest.
//
// It is used by the end-to-end tests and cmd/internal/demo. Product packages
// never do.
//
// Programs come from `make tools`. Find looks at the program's environment
// variable, at .tools/bin of the checkout, and at PATH, in this order, and its
// error names the make target that provides the program.
package proc
