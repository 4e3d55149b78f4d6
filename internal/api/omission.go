package api

import "fmt"

// An Omission is something that a source of endpoints has found and does not use.
type Omission struct {
	Address string `json:"address"` // empty if it is about several
	Object  string `json:"object"`  // such as `Pod llama-7`
	Reason  string `json:"reason"`  // what is wrong with it, and what to write instead
}

func (o Omission) String() string {
	if o.Address == "" {
		return o.Object + ": " + o.Reason
	}
	return fmt.Sprintf("%s (%s): %s", o.Address, o.Object, o.Reason)
}
