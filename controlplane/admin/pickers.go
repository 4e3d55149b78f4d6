package admin

import (
	"steelyard/internal/stat"
)

// Pickers are the programs that follow the loads, each by a stream of its own.
type Pickers struct {
	Connected int           `json:"connected"`
	List      []stat.Picker `json:"list"` // the oldest first; the handler shows at most maxPickers
}

// maxPickers bounds the list in an answer.
const maxPickers = 100

func (p Pickers) complete() Pickers {
	p.Connected = len(p.List)
	shown := make([]stat.Picker, 0, min(len(p.List), maxPickers))
	for _, picker := range limit(p.List, maxPickers) {
		picker.Clusters = orEmpty(picker.Clusters)
		shown = append(shown, picker)
	}
	p.List = shown
	return p
}
