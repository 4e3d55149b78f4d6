// Package inflight reads in-flight counts from Redis.
package inflight
