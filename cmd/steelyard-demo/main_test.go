package main

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"steelyard/cmd/internal/router"
)

// The demo ends with its output, and not with the connection of a client: the signal of both is the same one.
func TestTheDemoEndsWithItsOutputAndNotWithAConnection(t *testing.T) {
	ctx, end := untilClosed()
	defer signal.Reset(syscall.SIGPIPE)
	defer end()
	if !signal.Ignored(syscall.SIGPIPE) {
		t.Error("a closed connection ends the demo")
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	out := output{writer, end}
	if _, err := out.Write([]byte("x")); err != nil || ctx.Err() != nil {
		t.Fatalf("an open one: %v, %v", err, ctx.Err())
	}
	_ = reader.Close()
	if _, err := out.Write([]byte("x")); err == nil || ctx.Err() == nil {
		t.Errorf("a closed one: %v, %v", err, ctx.Err())
	}
}

// Otherwise an Envoy that has started without it is what the user reads about.
func TestTheDemosThatNeedTheModuleSayWhatBuildsIt(t *testing.T) {
	t.Setenv(router.SearchPath, t.TempDir())
	for _, name := range []string{"queue", "router", "prefix"} {
		c := command()
		c.SetArgs([]string{name, "--duration", "1s"})
		c.SetOut(io.Discard)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "make module") {
			t.Errorf("%s: %v, want what builds the module", name, err)
		}
	}
}
