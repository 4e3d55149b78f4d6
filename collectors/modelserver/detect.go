package modelserver

// Detect returns the engine of which the body has the most fields; empty if it has none. EngineCustom, whose series
// only a user can name, is never detected.
func Detect(body []byte) Engine {
	var found Engine
	most := 0
	for _, e := range Engines() {
		if e == EngineCustom {
			continue
		}
		reader, err := NewReader(e, Custom{})
		if err != nil {
			continue
		}
		if known := reader.known(body); known > most {
			found, most = e, known
		}
	}
	return found
}

// known returns how many fields of a body are known: none of one that cannot be read.
func (r *Reader) known(body []byte) (n int) {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	if r.parse(s, body) != nil {
		return 0
	}
	for i := range r.fields {
		if evaluateField(&r.fields[i], &s.samples).value.Known {
			n++
		}
	}
	return n
}
