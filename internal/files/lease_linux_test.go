package files

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestARegularFileThatHangsIsGivenUpAfterPatience: the test holds a lease on the file, and the kernel blocks each open
// until the lease is given up.
func TestARegularFileThatHangsIsGivenUpAfterPatience(t *testing.T) {
	path := write(t, "content")
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = Read(t.Context(), path, 10)
	if err == nil || !strings.Contains(err.Error(), path+" has not answered within 2s") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took < Patience || took > 2*Patience {
		t.Errorf("given up after %v, want %v", took, Patience)
	}
	if err := os.Rename(write(t, "another"), path); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(t.Context(), path, 10); string(got) != "another" || err != nil {
		t.Errorf("once another file is in its place: %q, %v", got, err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
}
