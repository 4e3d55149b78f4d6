// Package discovery finds the endpoints of a cluster.
package discovery
