package inflight

import "time"

// The modes of Options.Mode.
const (
	ModeSingle   = "single"
	ModeSentinel = "sentinel"
	ModeCluster  = "cluster"
)

// Options say how Redis is reached and how often it is read.
type Options struct {
	Addresses    []string
	Mode         string
	MasterName   string
	Username     string
	PasswordFile string
	DB           int
	TLS          *TLS
	Interval     time.Duration
	Timeout      time.Duration
}

// TLS makes the connections to Redis encrypted.
type TLS struct {
	CAFile     string
	CertFile   string
	KeyFile    string
	ServerName string
}
