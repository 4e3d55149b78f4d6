package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A Usage is what a row has cost since its start. Differences of two are what it
// cost between them.
type Usage struct {
	At      time.Time
	Envoys  []float64 // CPU seconds of each Envoy
	Control *ControlUsage
}

// ControlUsage is the part of a row's Steelyard, of all of its replicas.
type ControlUsage struct {
	CPU        float64 // seconds
	RSS        float64 // bytes, at this moment
	Pushes     float64 // assignments handed to the streams
	Suppressed float64 // decisions that were not pushed
	Drop       float64 // current share of the requests that the Envoys have to refuse
}

// Usage reads what the row has cost so far.
func (f *Fleet) Usage(ctx context.Context) (Usage, error) {
	u := Usage{At: time.Now()}
	for _, e := range f.envoys {
		p, err := readProcess(e.Pid())
		if err != nil {
			return u, fmt.Errorf("reading the CPU time of %s: %w", e.Name(), err)
		}
		u.Envoys = append(u.Envoys, p.cpu)
	}
	if len(f.replicas) == 0 {
		return u, nil
	}
	u.Control = &ControlUsage{}
	for _, r := range f.replicas {
		p, err := readProcess(r.process.Pid())
		if err != nil {
			return u, fmt.Errorf("reading the CPU time of steelyard: %w", err)
		}
		u.Control.CPU, u.Control.RSS = u.Control.CPU+p.cpu, u.Control.RSS+p.rss
		if err := r.readMetrics(ctx, u.Control); err != nil {
			return u, err
		}
	}
	return u, nil
}

// maxMetrics bounds a metrics page, in bytes.
const maxMetrics = 16 << 20

// metrics returns what a replica exports.
func (r *replica) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading Steelyard's metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxMetrics))
	if err != nil {
		return nil, fmt.Errorf("reading Steelyard's metrics: %w", err)
	}
	return families, nil
}

// follows returns the number of other replicas that a replica follows.
func (r *replica) follows(ctx context.Context) (int, error) {
	families, err := r.metrics(ctx)
	if err != nil || sum(families["steelyard_replicas_connected"]) == 0 {
		return 0, err
	}
	for _, m := range families["steelyard_replicas"].GetMetric() {
		if m.GetLabel()[0].GetValue() == "live" {
			return int(m.GetGauge().GetValue()), nil
		}
	}
	return 0, errors.New("there is no series steelyard_replicas{state=\"live\"}")
}

// readMetrics adds what a replica counts of itself, and the highest of the drop fractions.
func (r *replica) readMetrics(ctx context.Context, u *ControlUsage) error {
	families, err := r.metrics(ctx)
	if err != nil {
		return err
	}
	u.Pushes += sum(families["steelyard_pushes_total"])
	u.Suppressed += sum(families["steelyard_suppressed_pushes_total"])
	u.Drop = max(u.Drop, sum(families["steelyard_drop_ratio"]))
	return nil
}

// sum adds up the series of a family; the row's Steelyard has one cluster.
func sum(f *dto.MetricFamily) float64 {
	total := 0.0
	for _, m := range f.GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ, 100 on every Linux
// that Go runs on.
const ticksPerSecond = 100

type process struct {
	cpu float64 // seconds, user and system, of all threads
	rss float64 // bytes
}

// readProcess reads /proc/PID/stat (proc_pid_stat(5)).
func readProcess(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(text)
}

// parseStat takes fields 14, 15 and 24. The second field is the program's name
// in parentheses and may hold anything.
func parseStat(text []byte) (process, error) {
	rest := text[bytes.LastIndex(text, []byte(") "))+1:]
	fields := strings.Fields(string(rest)) // from the third on
	if len(fields) < 22 {
		return process{}, errors.New("the line of /proc is too short")
	}
	user, err1 := strconv.ParseFloat(fields[14-3], 64)
	system, err2 := strconv.ParseFloat(fields[15-3], 64)
	pages, err3 := strconv.ParseFloat(fields[24-3], 64)
	return process{cpu: (user + system) / ticksPerSecond, rss: pages * float64(os.Getpagesize())},
		errors.Join(err1, err2, err3)
}

// A Machine is how long all cores together have been busy and idle, in seconds.
type Machine struct{ Busy, Idle float64 }

// ReadMachine reads the first line of /proc/stat.
func ReadMachine() (Machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return Machine{}, fmt.Errorf("/proc/stat begins with %q, want the times of all cpus", line)
	}
	var m Machine
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return Machine{}, fmt.Errorf("reading /proc/stat: %w", err)
		}
		if i == 3 || i == 4 {
			m.Idle += v / ticksPerSecond
		} else {
			m.Busy += v / ticksPerSecond
		}
	}
	return m, nil
}

// Plus adds up two measurements.
func (m Machine) Plus(other Machine) Machine {
	return Machine{Busy: m.Busy + other.Busy, Idle: m.Idle + other.Idle}
}

// Minus returns what happened since an earlier reading.
func (m Machine) Minus(earlier Machine) Machine {
	return Machine{Busy: m.Busy - earlier.Busy, Idle: m.Idle - earlier.Idle}
}

// Share returns the part of the time in which the cores were busy, 0..1; NaN of none.
func (m Machine) Share() float64 { return m.Busy / (m.Busy + m.Idle) }
