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
		known := 0
		fields, _ := reader.Explain(body) // a body that cannot be read has no known field
		for _, f := range fields {
			if f.Value.Known {
				known++
			}
		}
		if known > most {
			found, most = e, known
		}
	}
	return found
}
