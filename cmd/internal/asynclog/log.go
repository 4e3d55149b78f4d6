package asynclog

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// A Log queues lines and writes them from a goroutine of its own. Close ends it.
type Log struct {
	sink    io.Writer
	queue   *queue
	handler slog.Handler
	repeats *repeats

	// notices formats the log's own lines into notice. Only the writer uses them.
	notices slog.Handler
	notice  bytes.Buffer

	stop chan struct{}
	done chan struct{}
}

// New makes a Log that writes to sink. format makes the handler that turns a record into
// one line, written with one Write.
func New(sink io.Writer, format func(io.Writer) slog.Handler) *Log {
	l := &Log{
		sink:    sink,
		queue:   &queue{wake: loops.NewSignal()},
		repeats: newRepeats(),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	l.notices = format(&l.notice)
	l.handler = handler{next: format(l.queue), repeats: l.repeats}
	go l.write()
	return l
}

// Handler is what a slog.Logger writes through. It never blocks.
func (l *Log) Handler() slog.Handler { return l.handler }

// Status returns the state of the writing. It never blocks.
func (l *Log) Status() api.LogStatus { return l.queue.snapshot() }

// Close writes the waiting lines and ends the writer. It returns after patience at the latest; a write that still waits
// for a reader then ends with the process. Call it once; lines that are logged afterwards are lost.
func (l *Log) Close(patience time.Duration) {
	close(l.stop)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}

// write is the goroutine of the writer.
func (l *Log) write() {
	defer close(l.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-l.queue.wake:
		case <-tick.C:
			l.summarize()
		case <-l.stop:
			l.summarize()
			l.drain()
			return
		}
		l.drain()
	}
}

// summarize logs how many lines were left out.
func (l *Log) summarize() {
	for _, s := range l.repeats.summaries() {
		r := slog.NewRecord(time.Now(), s.level, "repeated lines were left out", 0)
		r.AddAttrs(slog.String("line", s.line), slog.String(s.about.key, s.about.value),
			slog.Int("left_out", s.leftOut))
		_ = l.handler.(handler).next.Handle(context.Background(), r) // a queue takes everything
	}
}

// drain writes until no line waits, or a write fails: then the next line is the next try.
func (l *Log) drain() {
	for {
		lines, dropped := l.queue.drain()
		if len(lines) == 0 && dropped == 0 {
			return
		}
		left, err := l.put(lines)
		if err == nil && dropped > 0 {
			if _, err = l.put(l.about(dropped)); err == nil {
				l.queue.reported(dropped)
			}
		}
		l.queue.written(left, err)
		if err != nil {
			return
		}
	}
}

// put writes lines and returns those that it could not write.
func (l *Log) put(lines []byte) (left []byte, err error) {
	if len(lines) == 0 {
		return nil, nil
	}
	n, err := l.sink.Write(lines)
	return lines[n:], err
}

// about returns the line with the number of dropped lines. It is written whatever the level of the log.
func (l *Log) about(dropped uint64) []byte {
	l.notice.Reset()
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped, because they could not be written in time",
		0)
	r.AddAttrs(slog.Uint64("lines", dropped))
	_ = l.notices.Handle(context.Background(), r) // a buffer takes everything
	return l.notice.Bytes()
}
