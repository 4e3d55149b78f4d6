package leasetest

import (
	"testing"

	"steelyard/internal/lease"
)

func TestTheStoreInMemoryKeepsTheContract(t *testing.T) {
	m := &Memory{}
	Contract(t, Shelf{Store: func() lease.Store { return m }, Lose: m.Lose})
}
