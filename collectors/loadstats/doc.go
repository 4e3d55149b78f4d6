// Package loadstats serves Envoy's load reporting service.
package loadstats
