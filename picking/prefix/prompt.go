package prefix

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// PieceTokens is the size of a piece of token ids: what is hashed at once, and the default block of an engine.
	PieceTokens = 16
	// PieceBytes is the size of a piece of text, and of PieceTokens ids.
	PieceBytes = 4 * PieceTokens
	// MaxSteps bounds the steps of a prompt.
	MaxSteps = 128
	// firstSteps of them are kept from the beginning, where many prompts are the same.
	firstSteps = 32
	// firstRung is the least number of pieces at which a step is that is not the end of a message.
	firstRung = 16
)

// A Step is a beginning of a prompt: so many whole blocks of the engine, with a hash of all that is before.
type Step struct {
	Blocks int
	Hash   uint64
}

// A Prompt is what is compared of a request. The zero value has nothing to compare.
type Prompt struct {
	Steps []Step // by Blocks, each deeper than the one before
	// Whole is the size of the prompt in blocks, the part that was not read included.
	Whole float64
}

// Share returns the part of the prompt, 0..1, that this many blocks are.
func (p *Prompt) Share(blocks int) float64 {
	if p.Whole <= 0 {
		return 0
	}
	return min(1, float64(blocks)/p.Whole)
}

// Key returns a key of the first blocks beyond a step of this many blocks: requests that continue in the same way have
// the same key. It is 0 for a prompt without steps.
func (p *Prompt) Key(blocks int) uint64 {
	for _, s := range p.Steps {
		if s.Blocks > blocks {
			return s.Hash
		}
	}
	if n := len(p.Steps); n > 0 {
		return p.Steps[n-1].Hash
	}
	return 0
}

// FromBlocks returns a prompt whose blocks have these hashes, each of all blocks up to it, with the ends of messages in
// blocks, ascending.
func FromBlocks(hashes []uint64, ends []int32) Prompt {
	w := writer{per: 1}
	for i, h := range hashes {
		for len(ends) > 0 && int(ends[0]) <= i {
			w.step()
			ends = ends[1:]
		}
		w.add(h)
	}
	return w.prompt(float64(len(hashes)))
}

// A writer makes a prompt of its bytes.
type writer struct {
	per    float64 // blocks of the engine that a piece is
	hash   uint64
	pieces int
	part   [PieceBytes]byte // of the piece under way
	filled int
	rung   int // the next of the ladder
	steps  []Step
}

// seed begins the chain with what was written so far, which is then no part of the prompt.
func (w *writer) seed() {
	clear(w.part[w.filled:])
	*w = writer{per: w.per, hash: chained(w.hash, &w.part)}
}

// write adds text to the prompt.
func (w *writer) write(text []byte) {
	if w.filled+len(text) < PieceBytes {
		w.filled += copy(w.part[w.filled:], text)
		return
	}
	if w.filled > 0 {
		text = text[copy(w.part[w.filled:], text):]
		w.add(chained(w.hash, &w.part))
	}
	for len(text) >= PieceBytes {
		w.add(chained(w.hash, (*[PieceBytes]byte)(text)))
		text = text[PieceBytes:]
	}
	w.filled = copy(w.part[:], text)
}

// put adds one byte.
func (w *writer) put(c byte) {
	w.part[w.filled] = c
	if w.filled++; w.filled == PieceBytes {
		w.filled = 0
		w.add(chained(w.hash, &w.part))
	}
}

// token adds a token id.
func (w *writer) token(id uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], id)
	w.write(b[:])
}

// add takes in a whole piece by the hash up to its end.
func (w *writer) add(hash uint64) {
	w.hash = hash
	w.pieces++
	if w.rung == 0 {
		w.rung = firstRung
	}
	if w.pieces == w.rung {
		w.step()
		if w.rung&(w.rung-1) == 0 {
			w.rung += w.rung / 2
		} else {
			w.rung += w.rung / 3
		}
	}
}

// step makes a step of the whole blocks so far. Of several with as many, the first is shared by the most prompts.
func (w *writer) step() {
	blocks := int(float64(w.pieces) * w.per)
	if blocks == 0 || len(w.steps) > 0 && w.steps[len(w.steps)-1].Blocks == blocks {
		return
	}
	w.steps = append(w.steps, Step{Blocks: blocks, Hash: w.hash})
}

// written returns the size so far, in blocks.
func (w *writer) written() float64 { return (float64(w.pieces) + float64(w.filled)/PieceBytes) * w.per }

// prompt returns what was written, with a size in blocks.
func (w *writer) prompt(whole float64) Prompt {
	w.step()
	if len(w.steps) > MaxSteps {
		w.steps = slices.Delete(w.steps, firstSteps, len(w.steps)-(MaxSteps-firstSteps))
	}
	return Prompt{Steps: w.steps, Whole: whole}
}

// chained returns the hash of a piece after that of all before it. Its quarters do not wait for one another.
func chained(before uint64, piece *[PieceBytes]byte) uint64 {
	var quarters [4]uint64
	for i := range quarters {
		at := piece[16*i : 16*i+16]
		quarters[i] = mixed(binary.LittleEndian.Uint64(at)+uint64(i), binary.LittleEndian.Uint64(at[8:]))
	}
	return mixed(before^quarters[0]^bits.RotateLeft64(quarters[1], 32), quarters[2]^bits.RotateLeft64(quarters[3], 32))
}

// mixed folds the product of two words (as wyhash does, with two of its constants).
func mixed(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}
