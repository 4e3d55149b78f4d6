package envoybootstrap

import "errors"

// Render returns a complete bootstrap for Envoy 1.40 as YAML with comments. The
// error names every option that is wrong and what would be right.
func Render(o Options) ([]byte, error) { return nil, errors.New("not there yet") }

// RenderAttach returns what an Envoy that already has a configuration needs to
// follow Steelyard's weights: the clusters alone, as YAML with comments. It uses
// the same options; Listen, Admin, NodeID, Zone, IdleTimeout and AccessLog have
// no meaning there.
func RenderAttach(o Options) ([]byte, error) { return nil, errors.New("not there yet") }
