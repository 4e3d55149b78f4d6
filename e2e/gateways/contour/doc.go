// Package contour pins Contour, which tools/contour.sh builds for the tests. It is a module of its own, so that nothing
// of Contour gets into the go.mod of the tests.
package contour
