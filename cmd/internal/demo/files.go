package demo

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
)

// A folder has the files of Steelyard in a demo, for the person that tries its commands: the configuration, and a token
// of the role operate. It ends with the demo.
type folder struct{ dir string }

func newFolder() (folder, error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-files-")
	if err != nil {
		return folder{}, fmt.Errorf("making a folder for the configuration: %w", err)
	}
	f := folder{dir}
	return f, f.write(f.tokens(), "operate demo "+rand.Text()+"\n")
}

func (f folder) tokens() string { return filepath.Join(f.dir, "token") }
func (f folder) config() string { return filepath.Join(f.dir, "steelyard.yaml") }

func (f folder) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing a file of the demo: %w", err)
	}
	return nil
}

func (f folder) remove() error {
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}
