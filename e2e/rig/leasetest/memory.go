// Package leasetest has what every store of a lease has to do, as tests, and a store in memory that does it.
package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"steelyard/internal/lease"
)

// Memory keeps a lease in memory. It is a lease.Store.
type Memory struct {
	Now func() time.Time // nil: the time of the machine

	mu    sync.Mutex
	owner lease.Record // without an ID: nobody has the lease
	epoch uint64
	ends  time.Time // of the lease
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// Hold implements lease.Store.
func (m *Memory) Hold(_ context.Context, self lease.Record, floor uint64) (lease.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	free := m.owner.ID == "" || !now.Before(m.ends)
	if floor >= lease.MaxEpoch {
		return lease.Record{}, errors.New("there is no epoch above the highest")
	}
	if free {
		m.owner = self
	}
	rises := free || m.owner.Epoch < floor
	if rises {
		m.epoch = max(m.epoch, floor) + 1
		m.owner.Epoch = m.epoch
	}
	if rises || m.owner.ID == self.ID {
		m.ends = now.Add(lease.TTL)
	}
	return m.owner, nil
}

// Release implements lease.Store.
func (m *Memory) Release(_ context.Context, self lease.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owner.ID == self.ID {
		m.owner = lease.Record{}
	}
	return nil
}

// Lose has the store lose all that it has, its epoch too.
func (m *Memory) Lose() { m.Set(lease.Record{}, 0) }

// Set makes a replica the owner, with the latest epoch.
func (m *Memory) Set(owner lease.Record, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner, m.epoch, m.ends = owner, epoch, m.now().Add(lease.TTL)
	m.owner.Epoch = epoch
}
