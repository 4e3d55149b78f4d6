//go:build long

package matrix_test

// oneIn is how many cells of the matrix there are for each that is played.
const oneIn = 1
