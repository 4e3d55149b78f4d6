package fleet

import (
	"cmp"
	"fmt"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
)

func (f *Fleet) startServers(observer modelsim.Observer) error {
	listen, err := f.Policy.listen(f.Size.Servers)
	if err != nil {
		return err
	}
	for i := range f.Size.Servers {
		o := f.Size.serverOptions(i, f.Policy, observer)
		o.Address = cmp.Or(listen[i], o.Address)
		s, err := modelsim.Start(o)
		if err != nil {
			return err
		}
		f.servers = append(f.servers, s)
		if counter, ok := observer.(*modelsim.Counter); ok {
			counter.Track(s.Address())
		}
	}
	return nil
}

// listen returns where the servers of a row listen: on any port, or as Pods do, on one port and each on its own IP.
func (p Policy) listen(servers int) ([]string, error) {
	all := make([]string, servers)
	if !p.Extension {
		return all, nil
	}
	free, err := proc.FreeAddress()
	for i := range all {
		all[i] = fmt.Sprintf("127.0.%d.%d:%s", 1+i/250, 1+i%250, proc.Port(free))
	}
	return all, err
}

// Servers returns the model servers of the row, in the order of Size.
func (f *Fleet) Servers() []*modelsim.Server { return f.servers }

func (f *Fleet) addresses() []string {
	all := make([]string, len(f.servers))
	for i, s := range f.servers {
		all[i] = s.Address()
	}
	return all
}
