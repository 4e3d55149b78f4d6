// Package long tells a test whether it may take minutes: a test that does more then asks Is, and a test that is only
// long is in a file with the build tag long.
package long
