package stat

import "fmt"

// An Omission is something that a source of endpoints has found and does not use.
type Omission struct {
	Address string `json:"address"` // of an endpoint, as the source has it; empty where it is not about a single one
	Object  string `json:"object"`  // that the source names, such as "Pod a"
	Reason  string `json:"reason"`  // what is wrong with it, and what to write instead
}

func (o Omission) String() string {
	if o.Address == "" {
		return o.Object + ": " + o.Reason
	}
	return fmt.Sprintf("%s (%s): %s", o.Address, o.Object, o.Reason)
}
