package history

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"steelyard/internal/api"
)

// The fields of an endpoint in a row: two bytes each, then one byte for the state.
const (
	FieldShare = iota
	FieldServed
	FieldLoad // per slot
	FieldInFlight
	FieldLatency                    // seconds
	FineFields                      // of a row of one second
	fieldMaxLoad = FineFields       // the mean is in fieldLoad
	coarseFields = fieldMaxLoad + 1 // of a row of several seconds
)

// An order is the endpoints of a row, by address. Rows of one set of endpoints share it.
type order struct {
	id        uint64
	addresses []string
}

func (o *order) of(address string) int {
	i, found := slices.BinarySearch(o.addresses, address)
	if !found {
		return -1
	}
	return i
}

// A Row has the samples of a moment, or of the seconds up to it. It is not changed once it is in a ring.
type Row struct {
	at     time.Time
	order  *order
	fields int
	Pool   [PoolFields]float32 // of the cluster as a whole, in the order of a PoolTrace; NaN is unknown
	data   []byte              // a column of two bytes an endpoint for each field, then one of a byte for the states
}

// PoolFields is how many numbers a PoolTrace has.
const PoolFields = 9

// bytes is what a row takes, about.
func (r *Row) bytes() int { return cap(r.data) + rowOverhead }

const rowOverhead = 160

func rowBytes(endpoints, fields int) int { return endpoints*(2*fields+1) + rowOverhead }

func newRow(at time.Time, o *order, fields int) *Row {
	return &Row{at: at, order: o, fields: fields, data: make([]byte, len(o.addresses)*(2*fields+1))}
}

// column is the numbers of a field, by the index of the endpoint.
func (r *Row) column(field int) []byte {
	n := 2 * len(r.order.addresses)
	return r.data[field*n : (field+1)*n]
}

// States is the column of the states.
func (r *Row) States() []byte { return r.data[2*r.fields*len(r.order.addresses):] }

func (r *Row) code(field, endpoint int) uint16 {
	return binary.LittleEndian.Uint16(r.column(field)[2*endpoint:])
}

func (r *Row) Set(field, endpoint int, v float64) {
	binary.LittleEndian.PutUint16(r.column(field)[2*endpoint:], encode(v))
}

// coarseRow sums fine rows up: means, the highest load and the worst state. Its endpoints are those of the last one.
func coarseRow(fine []*Row) *Row {
	last := fine[len(fine)-1]
	r := newRow(last.at, last.order, coarseFields)
	states := r.States()
	for i, address := range last.order.addresses {
		var means [FineFields]mean
		highest := math.NaN()
		for _, f := range fine {
			k := i
			if f.order != last.order {
				if k = f.order.of(address); k < 0 {
					continue
				}
			}
			for field := range means {
				means[field].add(decodeTable()[f.code(field, k)])
			}
			if load := decodeTable()[f.code(FieldLoad, k)]; !(float64(load) <= highest) {
				highest = float64(load)
			}
			states[i] = max(states[i], f.States()[k])
		}
		for field := range means {
			r.Set(field, i, means[field].value())
		}
		r.Set(fieldMaxLoad, i, highest)
	}
	for k := range r.Pool {
		var m mean
		for _, f := range fine {
			m.add(f.Pool[k])
		}
		r.Pool[k] = float32(m.value())
	}
	return r
}

// A mean is of the known numbers added.
type mean struct {
	sum   float64
	known int
}

func (m *mean) add(v float32) {
	if v == v { // not NaN
		m.sum += float64(v)
		m.known++
	}
}

// value is NaN while no number is known.
func (m *mean) value() float64 {
	if m.known == 0 {
		return math.NaN()
	}
	return m.sum / float64(m.known)
}

// A number takes two bytes: the logarithm between 1e-7 and 1e7 in steps of 0.05 %, so that it is kept to 0.025 %.
const (
	codeUnknown = math.MaxUint16
	codeHighest = math.MaxUint16 - 1
	decades     = 14
	lowest      = -7 // power of ten of the lowest code
)

func encode(v float64) uint16 {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return codeUnknown
	case v < 1e-8: // below half of the lowest, and what is negative
		return 0
	}
	const mantissa = 52 // bits
	bits := math.Float64bits(v)
	exponent := float64(int(bits>>mantissa) - 1023)
	log2 := exponent + float64(logTable()[bits>>(mantissa-logBits)&(1<<logBits-1)])
	code := (log2-lowest/log10of2)*codeHighest*log10of2/decades + 0.5
	return uint16(min(max(code, 1), codeHighest))
}

const (
	log10of2 = 0.30102999566398120
	logBits  = 14 // of the mantissa that index the table: its error is a twentieth of a step
)

// logTable has the binary logarithms of mantissas: a look-up takes a tenth of the time of math.Log10, and a second of a
// large pool has thousands.
var logTable = sync.OnceValue(func() *[1 << logBits]float32 {
	t := new([1 << logBits]float32)
	for i := range t {
		t[i] = float32(math.Log2(1 + (float64(i)+0.5)/(1<<logBits)))
	}
	return t
})

// decodeTable has the number of each code. It is computed once: a window has a million of them.
var decodeTable = sync.OnceValue(func() *[math.MaxUint16 + 1]float32 {
	t := new([math.MaxUint16 + 1]float32)
	for code := 1; code <= codeHighest; code++ {
		t[code] = float32(math.Pow(10, float64(code)*decades/codeHighest+lowest))
	}
	t[codeUnknown] = float32(math.NaN())
	return t
})

// StateCode is the byte of a state: the worse, the higher. 0 is none.
func StateCode(s api.EndpointState) byte {
	all := api.EndpointStates()
	return byte(len(all) - slices.Index(all, s)) // a state that is not there is len + 1
}

func stateOf(code byte) api.EndpointState {
	all := api.EndpointStates()
	if code == 0 || int(code) > len(all) {
		return ""
	}
	return all[len(all)-int(code)]
}
