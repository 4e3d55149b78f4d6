package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// ownConfig writes a kubeconfig whose namespace is that of the room, with the rights of its service account.
func (r room) ownConfig(path string) {
	r.t.Helper()
	r.must(apiServer(r.t).WriteKubeconfig(path, "", r.tokenFile(apiServer(r.t))))
	config, err := clientcmd.LoadFromFile(path)
	r.must(err)
	config.Contexts[config.CurrentContext].Namespace = r.name
	r.must(clientcmd.WriteToFile(*config, path))
}

func TestAddressesOfAServiceAreThoseOfAllItsPods(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	r.ownConfig(path)
	c := connectWith(t, path)
	var mu sync.Mutex
	var latest []string
	var fault error
	inBackground(t, func(ctx context.Context) {
		c.Addresses(ctx, "steelyard-xds", "18000", func(found []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			latest, fault = found, err
		})
	})
	becomes := func(why string, want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("the addresses are %v", want), func() error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(latest, want) || (fault == nil) != (why == "") ||
				fault != nil && !strings.Contains(fault.Error(), why) {
				return fmt.Errorf("they are %v, %w", latest, fault)
			}
			return nil
		})
	}
	becomes("endpointslices")
	r.grant(r.name, readSlices) // of Pods nothing is asked
	becomes("Service " + r.name + "/steelyard-xds has no EndpointSlice")
	xds := []discoveryv1.EndpointPort{{Name: new("tcp-xds"), Port: new(int32(18000))}}
	r.slice("steelyard-xds", "one", xds, entry{address: "10.0.0.2", ready: yes()},
		entry{address: "10.0.0.1", ready: no()}, going(entry{address: "10.0.0.3"}))
	r.slice("other", "other", xds, entry{address: "10.0.0.9"})
	becomes("", "10.0.0.1:18000", "10.0.0.2:18000", "10.0.0.3:18000")
	r.sliceOf(discoveryv1.AddressTypeIPv6, "steelyard-xds", "six", xds, entry{address: "fd00::1"})
	r.slice("steelyard-xds", "one", append(xds, discoveryv1.EndpointPort{Name: new("admin"), Port: new(int32(19000))}),
		entry{address: "10.0.0.2", ready: yes()})
	becomes("", "10.0.0.2:18000")
	r.slice("steelyard-xds", "one", xds)
	becomes("", "[fd00::1]:18000")
	r.sliceOf(discoveryv1.AddressTypeIPv6, "steelyard-xds", "six", httpPort, entry{address: "fd00::1"})
	becomes("", "[fd00::1]:8000")
}

// ownAddress is one of this machine that EndpointSlices may have: they have none of loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, err := netip.ParsePrefix(a.String()); err == nil && ip.Addr().Is4() && ip.Addr().IsGlobalUnicast() {
			return ip.Addr().String()
		}
	}
	t.Skip("this machine has no address but those of loopback")
	return ""
}

// TestReplicasFindEachOtherByTheirService: as the manifests have it, by an option and without a section replicas.
func TestReplicasFindEachOtherByTheirService(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	r.grant(r.name, readSlices, readPods)
	host := ownAddress(t)
	var admins []string
	serve := func() (slice discoveryv1.EndpointPort) {
		addresses, err := proc.FreeAddresses(2)
		r.must(err)
		_, port, _ := net.SplitHostPort(addresses[0])
		dir := proctest.Dir(t)
		r.ownConfig(filepath.Join(dir, "kubeconfig"))
		path := filepath.Join(dir, "steelyard.yaml")
		r.must(os.WriteFile(path, []byte(fmt.Sprintf("xds: {listen: %q, insecure: true}\nadmin: {listen: %s}\n"+
			"kubernetes: {kubeconfig: kubeconfig}\nclusters:\n- name: llama\n  engine: vllm\n"+
			"  endpoints: {static: [{address: 10.0.0.1:80}]}\n  scrape: {disabled: true}\n", "0.0.0.0:"+port,
			addresses[1])), 0o600))
		proctest.Steelyard(t, proc.SteelyardConfig{Config: path, Admin: addresses[1], Dir: dir,
			Args: []string{"--service", "steelyard-xds"}})
		admins = append(admins, addresses[1])
		number, err := strconv.Atoi(port)
		r.must(err)
		return discoveryv1.EndpointPort{Name: new("tcp-xds"), Port: new(int32(number))}
	}
	for i := range 3 {
		port := serve()
		r.slice("steelyard-xds", fmt.Sprint("slice-", i), []discoveryv1.EndpointPort{port},
			entry{address: host, ready: no()})
		for _, admin := range admins {
			eventually(t, fmt.Sprintf("each of %d replicas has the counts of the others", i+1), func() error {
				return hasAll(admin, i)
			})
		}
	}
	r.removeSlice("slice-2")
	eventually(t, "the one that is not named any more follows, and is not followed", func() error {
		s, err := replicasOf(admins[0])
		if err == nil && (s.Connected || !strings.Contains(s.Error, "it follows this replica")) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

func replicasOf(admin string) (api.Replicas, error) {
	resp, err := http.Get("http://" + admin + "/api/v1/status")
	if err != nil {
		return api.Replicas{}, err
	}
	defer resp.Body.Close()
	var s api.Status
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s.Replicas, err
}

func hasAll(admin string, others int) error {
	s, err := replicasOf(admin)
	live := 0
	for _, o := range s.Others {
		if o.State == api.ReplicaLive && o.Follows {
			live++
		}
	}
	if err == nil && (!s.Connected || live != others) {
		err = fmt.Errorf("%d others are live, want %d: %+v", live, others, s)
	}
	return err
}
