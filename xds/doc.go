// Package xds serves endpoint assignments to Envoys.
package xds
