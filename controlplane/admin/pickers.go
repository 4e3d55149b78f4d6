package admin

import (
	"steelyard/controlplane/view"
)

// Pickers are the programs that follow the loads, each by a stream of its own.
type Pickers struct {
	Connected int      `json:"connected"`
	List      []Picker `json:"list"` // the oldest first; the handler shows at most maxPickers
}

// A Picker is one of them.
type Picker struct {
	Name     string    `json:"name"` // as it names itself
	Address  string    `json:"address"`
	Clusters []string  `json:"clusters"` // that it asks for; empty: all
	Since    view.Time `json:"since"`
}

// maxPickers bounds the list in an answer.
const maxPickers = 100

func (p Pickers) complete() Pickers {
	p.Connected = len(p.List)
	shown := make([]Picker, 0, min(len(p.List), maxPickers))
	for _, picker := range limit(p.List, maxPickers) {
		picker.Clusters = orEmpty(picker.Clusters)
		shown = append(shown, picker)
	}
	p.List = shown
	return p
}
