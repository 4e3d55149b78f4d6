package modelsim

import "errors"

// Servers are several that belong together.
type Servers []*Server

// StartServers starts n servers, each with its options, or none.
func StartServers(n int, options func(i int) Options) (Servers, error) {
	var all Servers
	for i := range n {
		s, err := Start(options(i))
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, s)
	}
	return all, nil
}

// Close stops all.
func (all Servers) Close() error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Addresses returns where the servers take requests.
func (all Servers) Addresses() []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = s.Address()
	}
	return out
}
