package weighting

import "maps"

// Clone returns a law that has learned the same, for a dry run: its steps change nothing of the original.
func (l *Law) Clone() *Law {
	c := *l
	c.healths = l.healths.Clone()
	c.memory = maps.Clone(l.memory)
	for address, m := range c.memory {
		own := *m
		c.memory[address] = &own
	}
	c.listed, c.scratch = list{}, scratch{}
	return &c
}
