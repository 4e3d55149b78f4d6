//go:build !unix

package daemon

func openFilesLimit() int { return 0 }
