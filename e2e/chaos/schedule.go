package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Kill    Kind = "kill"    // a process: SIGKILL, and started again after a while
	Pause   Kind = "pause"   // a process: SIGSTOP, and SIGCONT after a while
	Restart Kind = "restart" // a process: SIGTERM, and started again after a while
	Reset   Kind = "reset"   // a link: its connections are reset
	Hang    Kind = "hang"    // a link: no byte passes, and no connection is closed
	Refuse  Kind = "refuse"  // a link: its connections are reset, and so are new ones
	Change  Kind = "change"  // the configuration: another capacity
	Spoil   Kind = "spoil"   // the configuration: an invalid file, and then the valid one again
	Remove  Kind = "remove"  // a server: taken out of the configuration, and put back
	Replace Kind = "replace" // the certificates: new files, on which Steelyard is restarted in order
	Stall   Kind = "stall"   // the log reader: reads nothing, and goes on reading after a while
	Close   Kind = "close"   // the log's pipe: has no reader until Steelyard is restarted in order, with a new pipe
)

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	return []Kind{Kill, Pause, Restart, Reset, Hang, Refuse, Change, Spoil, Remove, Replace, Stall, Close}
}

// The fleet.
const (
	servers = 5
	envoys  = 3
)

// The parts of the fleet. Parts of which there are several have a number.
const (
	partSteelyard    = "steelyard"
	partRedis        = "redis"
	partRedisLink    = "link-redis" // from Steelyard
	partConfig       = "configuration"
	partCertificates = "certificates"
	partLog          = "log-reader"
	partLogPipe      = "log-pipe"
)

func envoyName(i int) string   { return fmt.Sprintf("envoy-%d", i) }
func serverName(i int) string  { return fmt.Sprintf("server-%d", i) }
func xdsLink(i int) string     { return fmt.Sprintf("link-xds-%d", i) }     // from Envoy i to Steelyard
func metricsLink(i int) string { return fmt.Sprintf("link-metrics-%d", i) } // from Steelyard to server i

// A Fault is one fault of one part.
type Fault struct {
	At   time.Duration // since the beginning of the faults
	Lane int           // faults of a lane follow one another: the next waits until this one is over
	Part string
	Kind Kind
	For  time.Duration // how long it lasts: until the process is started again, or the link passes bytes again
}

func (f Fault) String() string {
	if f.For == 0 {
		return fmt.Sprintf("%s %s", f.Part, f.Kind)
	}
	return fmt.Sprintf("%s %s for %.1f s", f.Part, f.Kind, f.For.Seconds())
}

// Pauses between two faults of a lane, and the quiet end of a run.
const (
	leastGap = 500 * time.Millisecond
	mostGap  = 1500 * time.Millisecond
	quietEnd = time.Second
)

// A card is a fault in the deck of a lane.
type card struct {
	part        string
	kind        Kind
	least, most float64 // seconds that it lasts
	recovery    float64 // seconds without a fault of the part afterwards, in which a process starts again
	early       bool    // not within lastLife of the end of a run
}

// lastLife returns the last part of a run, in which Steelyard is not ended. One process runs through all other faults
// of that time. Its memory, goroutines and descriptors are compared afterwards.
func lastLife(length time.Duration) time.Duration { return min(length/3, 2*time.Minute) }

// Schedule returns the faults of a run in order of time: a pure function of the seed and the length. Every lane deals
// its cards from a shuffled deck, and shuffles them again when all are dealt, so that each fault occurs within a
// minute.
func Schedule(seed uint64, length time.Duration) []Fault {
	var all []Fault
	for i, deck := range lanes() {
		all = append(all, deal(i, deck, rand.New(rand.NewPCG(seed, uint64(i))), length)...)
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

func deal(lane int, deck []card, r *rand.Rand, length time.Duration) []Fault {
	var faults []Fault
	for at := between(r, 0, mostGap); ; {
		cards := slices.Clone(deck)
		r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
		for _, c := range cards {
			lasts := between(r, seconds(c.least), seconds(c.most))
			f := Fault{At: at, Lane: lane, Part: c.part, Kind: c.kind, For: lasts}
			at += f.For + seconds(c.recovery) + between(r, leastGap, mostGap)
			switch {
			case at > length-quietEnd:
				return faults
			case c.early && f.At > length-lastLife(length): // no fault of the part instead
			default:
				faults = append(faults, f)
			}
		}
	}
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Float64()*float64(most-least))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// lanes returns the decks of cards. A part is in one lane, so that its faults never overlap, but they overlap with
// those of all other lanes. Servers and Envoys are in two lanes each: at most two of five servers and two of three
// Envoys are out at once, and a request always has somewhere to go.
func lanes() [][]card {
	return [][]card{
		steelyardLane(), configLane(),
		{{part: partLog, kind: Stall, least: 6, most: 9, recovery: 4}},
		slices.Concat(envoyCards(0), envoyCards(2)), envoyCards(1),
		slices.Concat(serverCards(0), serverCards(1), serverCards(2)), slices.Concat(serverCards(3), serverCards(4)),
		redisLane(), xdsLane(), metricsLane(),
	}
}

// steelyardLane returns all faults that end Steelyard. Closing the log's pipe is one of them, because only a new
// process gets another pipe.
func steelyardLane() []card {
	return []card{
		{part: partSteelyard, kind: Kill, least: 0.3, most: 4.5, recovery: 2, early: true},
		{part: partSteelyard, kind: Restart, least: 0, most: 1, recovery: 2, early: true},
		{part: partCertificates, kind: Replace, recovery: 2, early: true},
		{part: partLogPipe, kind: Close, least: 2, most: 4, recovery: 2, early: true},
		{part: partSteelyard, kind: Pause, least: 0.5, most: 5},
	}
}

func configLane() []card {
	deck := []card{
		{part: partConfig, kind: Change},
		{part: partConfig, kind: Spoil, least: 1, most: 3},
	}
	for i := range servers {
		deck = append(deck, card{part: serverName(i), kind: Remove, least: 1, most: 3})
	}
	return deck
}

func envoyCards(i int) []card {
	return []card{
		{part: envoyName(i), kind: Kill, least: 0.1, most: 2, recovery: 2},
		{part: envoyName(i), kind: Restart, least: 0, most: 1, recovery: 2},
		{part: envoyName(i), kind: Pause, least: 0.5, most: 4},
	}
}

func serverCards(i int) []card {
	return []card{
		{part: serverName(i), kind: Kill, least: 0.1, most: 3, recovery: 0.5},
		{part: serverName(i), kind: Restart, least: 0, most: 1, recovery: 0.5},
		{part: serverName(i), kind: Pause, least: 0.5, most: 4},
	}
}

func redisLane() []card {
	return []card{
		{part: partRedis, kind: Kill, least: 0.1, most: 4, recovery: 0.5},
		{part: partRedis, kind: Restart, least: 0, most: 1, recovery: 0.5},
		{part: partRedis, kind: Pause, least: 0.5, most: 4},
		{part: partRedisLink, kind: Reset},
		{part: partRedisLink, kind: Hang, least: 0.5, most: 4},
		{part: partRedisLink, kind: Refuse, least: 0.5, most: 4},
	}
}

// xdsLane sometimes lets a link hang for longer than Envoy's keepalive timeout (7 s).
func xdsLane() []card {
	var deck []card
	for i := range envoys {
		deck = append(deck,
			card{part: xdsLink(i), kind: Reset},
			card{part: xdsLink(i), kind: Hang, least: 1, most: 8},
			card{part: xdsLink(i), kind: Refuse, least: 0.5, most: 3})
	}
	return deck
}

func metricsLane() []card {
	var deck []card
	for i := range servers {
		deck = append(deck, card{part: metricsLink(i), kind: Hang, least: 0.5, most: 4})
	}
	return append(deck,
		card{part: metricsLink(0), kind: Reset},
		card{part: metricsLink(1), kind: Refuse, least: 0.5, most: 3},
		card{part: metricsLink(2), kind: Reset},
		card{part: metricsLink(3), kind: Refuse, least: 0.5, most: 3})
}
