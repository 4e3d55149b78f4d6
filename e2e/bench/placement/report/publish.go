package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// errInvalid ends a bench whose figures mean nothing.
var errInvalid = errors.New("the machine was too busy: these figures are not a result")

// A Printer is what a bench found, for people.
type Printer interface{ Write(io.Writer) error }

// Publish prints a document and writes its files: name.json into the folder, and what plot draws, where there is one.
// A document that is not valid does not replace one that is, and is an error.
func Publish(name, folder string, d Printer, valid bool, plot func(file string) error) error {
	if err := d.Write(os.Stdout); err != nil {
		return err
	}
	base := filepath.Join(folder, name)
	if !valid {
		base += "-invalid"
	}
	if err := WriteJSON(base+".json", d); err != nil {
		return err
	}
	files := base + ".json"
	if plot != nil {
		if err := plot(base + ".svg"); err != nil {
			return err
		}
		files = fmt.Sprintf("%[1]s.json, %[1]s.svg, %[1]s.png", base)
	}
	fmt.Printf("\n%s\n", files)
	if !valid {
		return errInvalid
	}
	return nil
}
