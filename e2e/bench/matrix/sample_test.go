//go:build !long

package matrix_test

// oneIn is how many cells of the matrix there are for each that is played; seven shares no factor with its axes.
const oneIn = 7
