package admin

import "steelyard/controlplane/view"

// The names under which package e2e still reads the values of package view.
type (
	Cluster      = view.Cluster
	Endpoint     = view.Endpoint
	Problem      = view.Problem
	SourceStatus = view.SourceStatus
	SourceState  = view.SourceState
)

const (
	SeverityWarning   = view.SeverityWarning
	SourceOK          = view.SourceOK
	SourceDown        = view.SourceDown
	SourceLoadReports = view.SourceLoadReports
)
