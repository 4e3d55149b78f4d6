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

// seed begins the chain with a text.
func (w *writer) seed(text []byte) {
	for len(text) > 0 {
		n := copy(w.part[:], text)
		clear(w.part[n:])
		w.hash = chained(w.hash, &w.part)
		text = text[n:]
	}
}

// write adds text to the prompt.
func (w *writer) write(text []byte) {
	for len(text) > 0 {
		n := copy(w.part[w.filled:], text)
		w.filled += n
		text = text[n:]
		if w.filled == PieceBytes {
			w.add(chained(w.hash, &w.part))
			w.filled = 0
		}
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

// chained returns the hash of a piece after that of all before it.
func chained(before uint64, piece *[PieceBytes]byte) uint64 {
	h := before
	for i := 0; i < PieceBytes; i += 16 {
		h = mixed(h^binary.LittleEndian.Uint64(piece[i:]), binary.LittleEndian.Uint64(piece[i+8:]))
	}
	return h
}

// mixed folds the product of two words (as wyhash does, with two of its constants).
func mixed(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}
