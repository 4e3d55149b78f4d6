package engine

// A cache is the blocks of prompts and answers that an engine still has. When it is
// full, the block that was used least recently leaves. Blocks are known by a hash of
// the text up to their end, so that a block is found only after all before it.
type cache struct {
	capacity int // blocks
	index    map[uint64]int32
	blocks   []block
	oldest   int32
	newest   int32
}

// A block is in a list by use; the links are indexes, and -1 ends it.
type block struct {
	hash         uint64
	older, newer int32
}

func newCache(p *Params) *cache {
	if p.CacheTokens < CacheBlock {
		return nil
	}
	return &cache{capacity: p.CacheTokens / CacheBlock, index: make(map[uint64]int32), oldest: -1, newest: -1}
}

// has is how many blocks from the beginning are there.
func (c *cache) has(hashes []uint64) int {
	for i, h := range hashes {
		if _, ok := c.index[h]; !ok {
			return i
		}
	}
	return len(hashes)
}

// use makes blocks the newest, the first of them last, and adds those that are not
// there.
func (c *cache) use(hashes []uint64) {
	for i := len(hashes) - 1; i >= 0; i-- {
		at, ok := c.index[hashes[i]]
		switch {
		case ok:
			c.leave(at)
		case len(c.blocks) < c.capacity:
			at = int32(len(c.blocks))
			c.blocks = append(c.blocks, block{})
		default:
			at = c.oldest
			c.leave(at)
			delete(c.index, c.blocks[at].hash)
		}
		c.enter(at, hashes[i])
	}
}

func (c *cache) enter(at int32, hash uint64) {
	c.blocks[at] = block{hash: hash, older: c.newest, newer: -1}
	if c.newest >= 0 {
		c.blocks[c.newest].newer = at
	} else {
		c.oldest = at
	}
	c.newest = at
	c.index[hash] = at
}

func (c *cache) leave(at int32) {
	b := &c.blocks[at]
	if b.older >= 0 {
		c.blocks[b.older].newer = b.newer
	} else {
		c.oldest = b.newer
	}
	if b.newer >= 0 {
		c.blocks[b.newer].older = b.older
	} else {
		c.newest = b.older
	}
}
