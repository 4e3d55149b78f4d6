package chaos

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"steelyard/e2e/rig/proc"
)

// A configFile is Steelyard's configuration, which a run rewrites.
type configFile struct {
	path  string
	at    addresses
	certs *certificates

	// valid is held to start Steelyard, and while the file is invalid: with such a file Steelyard does not start.
	valid sync.Mutex

	capacity int    // of each server, in slots
	without  string // the server that is left out; empty: none
	queue    string // a line of the cluster; empty: it has no queue
}

func newConfigFile(path string, at addresses, certs *certificates) *configFile {
	return &configFile{path: path, at: at, certs: certs, capacity: slots}
}

func (c *configFile) whileValid(do func() error) error {
	c.valid.Lock()
	defer c.valid.Unlock()
	return do()
}

func (c *configFile) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `xds:
  listen: %s
  tls: {cert_file: %s, key_file: %s, client_ca_file: %s}
admin: {listen: %s}
redis: {addresses: [%s]}
clusters:
- name: %s
  engine: vllm
  capacity: %d
  inflight: {redis_key: "inflight:{cluster}"}
  %s
  endpoints:
    static:
`, c.at.xds, c.certs.cert(steelyardCert), c.certs.keyOf(steelyardCert), c.certs.ca(),
		c.at.admin, c.at.toRedis, cluster, c.capacity, c.queue)
	for i, a := range c.at.servers {
		if serverName(i) != c.without {
			fmt.Fprintf(&b, "    - {address: %s, metrics_port: %s}\n", a, proc.Port(c.at.metrics[i]))
		}
	}
	return b.String()
}

// write puts the configuration in the place of the file in one move, as an
// operator's tools do.
func (c *configFile) write() error { return c.put(c.text()) }

func (c *configFile) put(text string) error {
	fresh := c.path + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, c.path)
}
