package config

import "fmt"

// Size is a number of bytes, written with its unit: 512B, 64KiB, 4MiB, 1GiB.
type Size int64

// sizeUnits in rising order.
var sizeUnits = [...]struct {
	name  string
	bytes Size
}{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for i := len(sizeUnits) - 1; i > 0; i-- {
		if u := sizeUnits[i]; s >= u.bytes && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}
