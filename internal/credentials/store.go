package credentials

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"steelyard/internal/files"
	"steelyard/internal/loops"
)

// Interval is the time between two readings of a file. New content is in use after at most two of them.
const Interval = 500 * time.Millisecond

// A File is a certificate with its key, or, without a key, a file of authorities.
type File struct{ Cert, Key string }

// A Material is the usable content of a File.
type Material struct {
	// Pair is the certificate with its key, Pool the authorities; one of them is nil.
	Pair *tls.Certificate
	Pool *x509.CertPool
	// Certificates are the chain, or the authorities.
	Certificates []*x509.Certificate

	fingerprint [sha256.Size]byte
}

// A Store has the files that it was asked for, and their content. Its methods can be called from any goroutine.
type Store struct {
	// Guard is deferred by each goroutine, for a process that must not end by a panic. Set it before Run.
	Guard func()

	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	known map[File]*entry
}

// An entry holds the content of a file.
type entry struct {
	material *Material // nil before the first that is usable
	err      error     // why the file itself cannot be used
	latest   string    // what the latest reading found: the fingerprint of a content, or an error
}

// New returns a Store without files.
func New(log *slog.Logger) *Store {
	return &Store{Guard: func() {}, log: log, now: time.Now, known: make(map[File]*entry)}
}

// Get returns the current content of a file. It reads a file that never was usable; the error is that of this reading.
func (s *Store) Get(ctx context.Context, f File) (*Material, error) {
	s.mu.Lock()
	e := s.known[f]
	if e == nil {
		e = &entry{}
		s.known[f] = e
	}
	current := e.material
	s.mu.Unlock()
	if current != nil {
		return current, nil
	}
	current, err := f.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.material != nil { // another caller was first
		return e.material, nil
	}
	if e.err = err; err != nil {
		return nil, err
	}
	e.material = current
	return current, nil
}

// State returns the content of a file that is in use, nil if there is none, and why the file itself cannot be used.
func (s *Store) State(f File) (*Material, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[f]
	if e == nil {
		return nil, nil
	}
	return e.material, e.err
}

// Follow sets which files are kept up to date: these, and no others. It reads none.
func (s *Store) Follow(used map[File]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.known {
		if !used[f] {
			delete(s.known, f)
		}
	}
	for f := range used {
		if s.known[f] == nil {
			s.known[f] = &entry{}
		}
	}
}

// Run reads the files at once and then periodically until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	s.Refresh(ctx)
	loops.Every(ctx, Interval, func(time.Time) { s.Refresh(ctx) })
	return nil
}

// Refresh reads all files once.
func (s *Store) Refresh(ctx context.Context) {
	s.mu.Lock()
	all := make([]File, 0, len(s.known))
	for f := range s.known {
		all = append(all, f)
	}
	s.mu.Unlock()
	var group sync.WaitGroup // one that hangs does not delay the others
	for _, f := range all {
		group.Go(func() {
			defer s.Guard()
			s.refresh(ctx, f)
		})
	}
	group.Wait()
}

func (s *Store) refresh(ctx context.Context, f File) {
	found, err := f.read(ctx)
	if ctx.Err() != nil {
		return
	}
	if before, after, ok := s.keep(f, found, err); ok {
		s.report(f, before, after)
	}
}

// keep takes in what was read of a file, and returns its entry before and after; false for one that was forgotten
// meanwhile.
func (s *Store) keep(f File, found *Material, err error) (before, after entry, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // after a panic, too
	e := s.known[f]
	if e == nil {
		return entry{}, entry{}, false
	}
	before = *e
	e.latest = outcome(found, err)
	switch twice := e.latest == before.latest; {
	case !twice && e.material != nil: // the next reading decides
	case err != nil:
		e.err = err
	case e.material != nil && e.material.fingerprint == found.fingerprint:
		e.err = nil
	default:
		if e.err = s.outdated(f, e.material, found); e.err == nil {
			e.material = found
		}
	}
	return before, *e, true
}

func outcome(found *Material, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(found.fingerprint[:])
}

// outdated refuses an expired content as a replacement for one that has not expired.
func (s *Store) outdated(f File, current, found *Material) error {
	now := s.now()
	if end := found.end(); current != nil && !end.After(now) && current.end().After(now) {
		return fmt.Errorf("%s has expired, on %s, and the previous one has not", f.Cert, end.UTC().Format(time.RFC3339))
	}
	return nil
}

// end returns when the material is of no more use: when the first of a chain expires, or the last of authorities.
func (m *Material) end() time.Time {
	end := m.Certificates[0].NotAfter
	for _, c := range m.Certificates {
		if (m.Pair != nil) == c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// report logs a change of state.
func (s *Store) report(f File, before, after entry) {
	switch {
	case before.material != nil && after.material != before.material:
		s.log.Info("certificate file renewed", "file", f.Cert, "subject",
			after.material.Certificates[0].Subject.String(), "until", after.material.end().UTC())
	case after.err != nil && (before.err == nil || before.err.Error() != after.err.Error()):
		s.log.Warn("certificate file cannot be used, its previous content stays in use", "file", f.Cert, "error",
			after.err)
	case after.err == nil && before.err != nil:
		s.log.Info("certificate file can be used again", "file", f.Cert)
	}
}

// read reads the files.
func (f File) read(ctx context.Context) (*Material, error) {
	m := &Material{}
	if f.Key == "" {
		pool, list, err := files.CertPool(ctx, f.Cert)
		if err != nil {
			return nil, err
		}
		m.Pool, m.Certificates = pool, list
	} else {
		pair, err := files.KeyPair(ctx, f.Cert, f.Key)
		if err != nil {
			return nil, err
		}
		m.Pair = &pair
		for _, der := range pair.Certificate {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Cert, err)
			}
			m.Certificates = append(m.Certificates, c)
		}
	}
	sum := sha256.New()
	for _, c := range m.Certificates {
		sum.Write(c.Raw)
	}
	sum.Sum(m.fingerprint[:0])
	return m, nil
}
