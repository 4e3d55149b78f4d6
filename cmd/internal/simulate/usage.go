package simulate

import (
	"fmt"
)

// Usage is a mistake in the command line, as opposed to one in a file.
type Usage struct{ error }

// Unwrap gives the cause.
func (u Usage) Unwrap() error { return u.error }

func usage(format string, args ...any) error { return Usage{fmt.Errorf(format, args...)} }
