package discovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"steelyard/internal/api"
)

const (
	// MaxOmissions is how many omissions of a source are named.
	MaxOmissions = 20
	// maxReason bounds the reason of one, in bytes.
	maxReason = 500
)

// Omissions are what a source has left out of its latest set. As the error that a source reports they are no failure:
// the set is used without them. An error that wraps them is one, and they are its cause.
type Omissions struct {
	First []api.Omission // sorted, at most MaxOmissions
	Count int            // of all
}

// Omit returns the omissions as an error, each once; nil for none.
func Omit(all []api.Omission) error {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b api.Omission) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Reason, b.Reason))
	})
	all = slices.Compact(all)
	first := all[:min(len(all), MaxOmissions)]
	for i := range first {
		if r := &first[i].Reason; len(*r) > maxReason {
			*r = strings.ToValidUTF8((*r)[:maxReason], "") + "…"
		}
	}
	return &Omissions{slices.Clip(first), len(all)}
}

func (o *Omissions) Error() string {
	var all []string
	for _, omission := range o.First {
		all = append(all, omission.String())
	}
	if more := o.Count - len(o.First); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// Both returns the errors as one, on one line; nil if both are.
func Both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b)
}
