package current

import (
	"slices"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestAMatrixIsSortedAddedUpAndCut(t *testing.T) {
	m := CompleteMatrix(api.Matrix{Endpoints: []string{"b", "a"}, Envoys: []api.MatrixRow{
		{NodeID: "idle", InFlight: []int{0, 0}}, {NodeID: "busy", InFlight: []int{5, 2}}}}, noon)
	if !slices.Equal(m.Endpoints, []string{"a", "b"}) || !slices.Equal(m.EndpointTotals, []int{2, 5}) || m.Total != 7 ||
		m.Envoys[0].NodeID != "busy" || !slices.Equal(m.Envoys[0].InFlight, []int{2, 5}) || m.EnvoysLeftOut != 0 {
		t.Errorf("%+v", m)
	}
	wide := api.Matrix{Endpoints: make([]string, matrixNumbers/2)}
	for range 3 {
		row := api.MatrixRow{InFlight: make([]int, len(wide.Endpoints))}
		row.InFlight[0] = 1
		wide.Envoys = append(wide.Envoys, row)
	}
	if m := CompleteMatrix(wide, noon); len(m.Envoys) != 2 || m.EnvoysLeftOut != 1 ||
		m.Total != 3 {
		t.Errorf("%d rows, %d left out, total %d", len(m.Envoys), m.EnvoysLeftOut, m.Total)
	}
}

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
