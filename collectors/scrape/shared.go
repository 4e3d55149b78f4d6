package scrape

import (
	"bytes"
	"maps"
	"sync"

	"steelyard/collectors/modelserver"
)

// A shared has what the loops of a pool have in common, so that each of thousands needs little memory.
type shared struct {
	network network
	bodies  sync.Pool                       // of *bytes.Buffer
	readers map[dialect]*modelserver.Reader // of the current targets
}

// A dialect identifies a reader of pages: targets with the same dialect share one.
type dialect struct {
	engine modelserver.Engine
	custom modelserver.Custom
}

func newShared() *shared {
	return &shared{
		bodies:  sync.Pool{New: func() any { return new(bytes.Buffer) }},
		readers: make(map[dialect]*modelserver.Reader),
	}
}

// reader returns the reader of a target's page.
func (s *shared) reader(t Target) (*modelserver.Reader, error) {
	d := dialect{t.Engine, t.Custom}
	if r := s.readers[d]; r != nil {
		return r, nil
	}
	r, err := modelserver.NewReader(t.Engine, t.Custom)
	if err == nil {
		s.readers[d] = r
	}
	return r, err
}

// keepReaders drops the readers that none of the targets needs.
func (s *shared) keepReaders(wanted map[Target]struct{}) {
	needed := make(map[dialect]bool)
	for t := range wanted {
		needed[dialect{t.Engine, t.Custom}] = true
	}
	maps.DeleteFunc(s.readers, func(d dialect, _ *modelserver.Reader) bool { return !needed[d] })
}
