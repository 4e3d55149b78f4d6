package loads

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/spelling"
)

const (
	// maxMissed bounds the unknown clusters whose followers are logged, until the configuration changes.
	maxMissed = 256
	// maxListed is how many clusters an error lists.
	maxListed = 8
	// longestName bounds what is shown of a name, in bytes.
	longestName = 256
)

func clipped(name string) string { return name[:min(len(name), longestName)] }

// find returns an error if a picker names clusters and none of them is configured: no loads would come. A name that is
// not configured is logged once, however often its picker tries again.
func (s *Server) find(ctx context.Context, f *api.Picker) error {
	missing, first, names := s.missing(f.Clusters)
	if len(missing) == 0 {
		return nil
	}
	hint := func(cluster string, names []string) string {
		return fmt.Sprintf("no cluster %q is configured%s", clipped(cluster), instead(cluster, names))
	}
	for _, cluster := range first {
		s.log.Warn("a picker follows a cluster that is not configured", "picker", f.Name, "peer", f.Address, "error",
			hint(cluster, names))
	}
	if len(missing) < len(f.Clusters) {
		return nil
	}
	if s.Visible != nil {
		if visible := s.Visible(ctx); visible != nil {
			names = slices.DeleteFunc(names, func(name string) bool { return !visible(name) })
		}
	}
	return status.Error(codes.NotFound, hint(missing[0], names))
}

// missing returns which of the clusters are not configured, which of those have not been logged yet, and the clusters
// that are configured.
func (s *Server) missing(clusters []string) (missing, first, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range clusters {
		if _, configured := s.settings[c]; configured || s.settings == nil {
			continue
		}
		missing = append(missing, c)
		if _, logged := s.missed[c]; !logged && len(s.missed) < maxMissed {
			s.missed[strings.Clone(c)] = struct{}{}
			first = append(first, c)
		}
	}
	if len(missing) > 0 {
		names = slices.Sorted(maps.Keys(s.settings))
	}
	return missing, first, names
}

// instead returns what may have been meant instead of a name, as the end of a sentence.
func instead(name string, names []string) string {
	if near := spelling.DidYouMean(name, names); near != "" || len(names) == 0 {
		return near
	}
	listed := strings.Join(names[:min(len(names), maxListed)], ", ")
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("; there are: %s and %d more", listed, more)
	}
	return "; there are: " + listed
}
