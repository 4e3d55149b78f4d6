package gateways

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// A load is requests one after the other from several clients, until it ends.
type load struct {
	r    *rig
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	sent     int
	failures []string
	servers  map[string]int
}

// send begins to send requests to a route, 40 a second or so.
func (r *rig) send(route string) *load { return r.sendTo(gatewayAddress, route) }

// sendTo does so at a listener.
func (r *rig) sendTo(listener, route string) *load {
	ctx, stop := context.WithCancel(r.t.Context())
	l := &load{r: r, stop: stop, servers: map[string]int{}}
	for range 4 {
		l.done.Go(func() {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.tls(route)}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				l.request(client, to(listener, route))
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	r.t.Cleanup(func() { l.stop(); l.done.Wait() })
	return l
}

// tls trusts the certificate of the HTTPS listener, for the host of a route.
func (r *rig) tls(route string) *tls.Config {
	return &tls.Config{RootCAs: r.authority.Pool(), ServerName: host(route)}
}

// host returns the host of the requests of a route.
func host(route string) string {
	name, _, _ := strings.Cut(route, "/")
	return name + ".example.com"
}

// to is a request of a route, which begins its path.
func to(listener, route string) *http.Request {
	body := `{"prompt": "` + strings.Repeat("a prompt that all requests have, ", 100) + `"}`
	req, err := http.NewRequest(http.MethodPost, listener+"/"+route+"/v1/completions", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Host = host(route)
	return req
}

func (l *load) request(client *http.Client, req *http.Request) {
	req.Header.Set(modelsim.HeaderService, "0.02")
	resp, err := client.Do(req)
	var server, failure string
	if err != nil {
		failure = err.Error()
	} else {
		body, readErr := io.ReadAll(resp.Body)
		resp.Body.Close()
		server = resp.Header.Get(modelsim.HeaderServer)
		if readErr != nil || resp.StatusCode != http.StatusOK {
			failure = fmt.Sprintf("%s %.100s (%v)", resp.Status, body, readErr)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if failure != "" {
		l.failures = append(l.failures, fmt.Sprintf("request %d: %s", l.sent, failure))
		return
	}
	host, _, _ := strings.Cut(server, ":")
	l.servers[host]++
}

// more waits for some more requests.
func (l *load) more(n int) {
	l.r.t.Helper()
	l.mu.Lock()
	until := l.sent + n
	l.mu.Unlock()
	l.r.eventually("requests are sent", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sent < until {
			return fmt.Errorf("%d of %d are", l.sent, until)
		}
		return nil
	})
}

// total is how many were sent.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// reset forgets what was counted, but not the failures, and returns it.
func (l *load) reset() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.servers
	l.servers = map[string]int{}
	return was
}

// end ends the load: no request may have failed.
func (l *load) end() (sent int) {
	l.r.t.Helper()
	l.stop()
	l.done.Wait()
	if n := len(l.failures); n > 0 {
		l.r.t.Errorf("%d of %d requests failed, such as %q", n, l.sent, l.failures[:min(n, 3)])
	}
	return l.sent
}

// answers waits until a route answers.
func (r *rig) answers(route string) {
	r.t.Helper()
	r.answersAt(gatewayAddress, route)
}

// answersAt waits for the answer at a listener.
func (r *rig) answersAt(listener, route string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.tls(route)}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	r.eventually("the route "+route+" answers at "+listener, func() error {
		resp, err := client.Do(to(listener, route))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(resp.Body)
			return errors.New(resp.Status + " " + string(body))
		}
		return nil
	})
}

// follows proves that the weights are followed: a server that is drained gets no request, and some afterwards.
func (r *rig) follows(l *load, pool, ip string) {
	r.t.Helper()
	r.eventually(ip+" is a member", func() error { return r.member(pool, ip) })
	r.steelyard("drain", clusterOf(pool), ip+":"+r.port, "--reason", "test")
	r.eventually(ip+" gets no request while it is drained", func() error {
		l.reset()
		l.more(40)
		if n := l.reset()[ip]; n > 0 {
			return fmt.Errorf("%d of 40 requests went there", n)
		}
		return nil
	})
	r.steelyard("undrain", clusterOf(pool), ip+":"+r.port)
	r.reaches(l, ip)
}

// reaches waits until requests go to one of these servers.
func (r *rig) reaches(l *load, ips ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%v get requests", ips), func() error {
		l.reset()
		l.more(20)
		got := l.reset()
		for _, ip := range ips {
			if got[ip] > 0 {
				return nil
			}
		}
		return errors.New("none of 20 went there")
	})
}
