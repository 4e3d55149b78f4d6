package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that Linux gives to outgoing
// connections (32768 and up), so that no connection can take one between the
// moment it was found free and the moment a program listens on it.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreeAddress returns a loopback address with a port that nothing listens on.
// Prefer port 0 where a program reports its port.
func FreeAddress() (string, error) {
	addrs, err := FreeAddresses(1)
	if err != nil {
		return "", err
	}
	return addrs[0], nil
}

// FreeAddresses returns n loopback addresses with consecutive ports, as a
// program that counts its ports from a base needs them.
func FreeAddresses(n int) ([]string, error) {
	for range 1000 {
		base := firstPort + rand.IntN(lastPort-firstPort-n)
		addrs := make([]string, n)
		for i := range addrs {
			addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(base+i))
		}
		if free(addrs) {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no %d free consecutive ports between %d and %d", n, firstPort, lastPort)
}

func free(addrs []string) bool {
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// Port returns the port of an address that FreeAddresses made.
func Port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
