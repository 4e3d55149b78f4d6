package main

import (
	"context"
	"os"
	"time"
)

// A sampler follows CPU time and memory of a process over a window, and the
// bench's own CPU time and lateness.
type sampler struct {
	pid        int
	began      time.Time
	cpu, bench time.Duration // at the begin

	memory  []point // bytes
	sampled time.Time
	largest float64 // bytes
	late    []time.Duration
}

const (
	beatEvery   = 10 * time.Millisecond
	memoryEvery = time.Second
)

func newSampler(pid int) (*sampler, error) {
	s := &sampler{pid: pid}
	var err error
	if s.cpu, err = cpuTime(pid); err != nil {
		return nil, err
	}
	if s.bench, err = cpuTime(os.Getpid()); err != nil {
		return nil, err
	}
	s.began = time.Now()
	return s, s.sampleMemory(s.began)
}

// follow samples until ctx is done. The lateness is that of a goroutine that
// sleeps until a planned moment.
func (s *sampler) follow(ctx context.Context) error {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	planned := s.began.Add(beatEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		s.late = append(s.late, now.Sub(planned))
		if now.Sub(s.sampled) >= memoryEvery {
			if err := s.sampleMemory(now); err != nil {
				return err
			}
		}
		planned = now.Add(beatEvery)
		timer.Reset(time.Until(planned))
	}
}

func (s *sampler) sampleMemory(now time.Time) error {
	bytes, err := resident(s.pid)
	if err != nil {
		return err
	}
	s.sampled = now
	s.largest = max(s.largest, bytes)
	s.memory = append(s.memory, point{now.Sub(s.began).Seconds(), bytes})
	return nil
}

// end closes the window and writes it to the row.
func (s *sampler) end(row *Row) error {
	cpu, err := cpuTime(s.pid)
	if err != nil {
		return err
	}
	bench, err := cpuTime(os.Getpid())
	if err != nil {
		return err
	}
	row.Seconds = time.Since(s.began).Seconds()
	row.Cores = (cpu - s.cpu).Seconds() / row.Seconds
	row.BenchCores = (bench - s.bench).Seconds() / row.Seconds
	row.RSS, row.Growth = s.largest, slope(s.memory)*60
	row.Lateness = quantiles(s.late)
	return nil
}
