package picking

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/xds/loads/loadsv1"
)

// hinted has an Envoy limit the endpoints of a request, as a gateway does, to those that a header of the request names:
// x-test-list has a list, as an encoded google.protobuf.Value, x-test-text one text.
var hinted = []testbed.Edit{
	{"          http_filters:\n", `          http_filters:
          - name: hint
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: x-test-list
                on_header_present: {metadata_namespace: envoy.lb.subset_hint, encode: BASE64, type: PROTOBUF_VALUE,
                  key: x-gateway-destination-endpoint-subset}
              - header: x-test-text
                on_header_present: {metadata_namespace: envoy.lb.subset_hint, type: STRING,
                  key: x-gateway-destination-endpoint-subset}
`},
	forwarded("envoy.lb.subset_hint"),
}

// forwarded has an Envoy send its picker a namespace of the request's metadata.
func forwarded(namespace string) testbed.Edit {
	const received = "                receiving_namespaces: {untyped: [envoy.lb]}\n"
	return testbed.Edit{received, received + "                forwarding_namespaces: {untyped: [" + namespace + "]}\n"}
}

// TestTheSubsetOfAGatewayIsKept: a filter in front of the picker's has written it into the metadata of the request.
func TestTheSubsetOfAGatewayIsKept(t *testing.T) {
	pool := testbed.Pool(t, 3)
	at := func(i int) string { return pool[i].Address() }
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: slices.Concat(hinted, testbed.Patient)})
	p := testbed.StartPicker(t, f.Dir, serveLoads(t, &one{addresses: []string{at(0), at(1), at(2)}}), "")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address}
	f.StartEnvoy(0)
	const unknown = "10.9.9.9:80"
	for _, c := range []struct {
		name   string
		subset []string // nil: no hint
		want   string   // the server that answers; empty: none does
	}{
		{"no hint", nil, at(0)},
		{"the busiest", []string{at(2)}, at(2)},
		{"the less busy of two", []string{at(2), at(1)}, at(1)},
		{"one of two is known", []string{unknown, at(1)}, at(1)},
		{"none is known", []string{unknown}, ""},
		{"an empty list", []string{}, ""},
	} {
		for form, header := range hintsOf(t, c.subset) {
			t.Run(c.name+", "+form, func(t *testing.T) {
				resp := f.PostWith(t, []byte("{}"), modelsim.HeaderService, "0.001", header[0], header[1])
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				refused := resp.StatusCode == http.StatusServiceUnavailable &&
					strings.Contains(string(text), "x-gateway-destination-endpoint-subset")
				if got := resp.Header.Get("X-Server"); got != c.want || refused != (c.want == "") {
					t.Errorf("server %q answered, status %d: %s; want %q", got, resp.StatusCode, text, c.want)
				}
			})
		}
	}
	series := fmt.Sprintf("steelyard_picker_unknown_endpoints_total{envoy_cluster_name=%q,reason=\"subset\"}",
		testbed.Cluster)
	if got := p.Value(t, series); got != 4 {
		t.Errorf("%v requests had an unknown endpoint, want 4", got)
	}
}

// hintsOf are the headers for a subset, by the form of the hint.
func hintsOf(t *testing.T, subset []string) map[string][2]string {
	t.Helper()
	if subset == nil {
		return map[string][2]string{"at all": {"x-test-none", "-"}}
	}
	list := &structpb.ListValue{}
	for _, s := range subset {
		list.Values = append(list.Values, structpb.NewStringValue(s))
	}
	encoded, err := proto.Marshal(structpb.NewListValue(list))
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string][2]string{"as a list": {"x-test-list", base64.StdEncoding.EncodeToString(encoded)}}
	if len(subset) > 0 { // Envoy writes no empty text
		forms["as a text"] = [2]string{"x-test-text", strings.Join(subset, ", ")}
	}
	return forms
}

// TestTheEndpointThatAGatewayReportsAsServedIsLearned: the picker gets the protocol's metadata, which Envoy writes when
// it has selected an endpoint, and not the attribute that steelyard bootstrap has it send.
func TestTheEndpointThatAGatewayReportsAsServedIsLearned(t *testing.T) {
	const sources = "            override_host_sources:\n"
	f, p := withPicker(t, testbed.Pool(t, 2),
		testbed.Edit{"response_attributes: [upstream.address]", ""}, forwarded("envoy.lb"), testbed.Edit{sources,
			"            selected_host_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint-served}]}\n" +
				sources})
	f.retryTeaches(t, func() { f.seen(t, p) }, func() float64 { return p.Choices(t, "prefix") })
}

// TestARetryGoesToTheNextEndpointThatThePickerNamed, in the order of the list.
func TestARetryGoesToTheNextEndpointThatThePickerNamed(t *testing.T) {
	pool := testbed.Pool(t, 4)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: testbed.Patient})
	p := testbed.StartPicker(t, f.Dir, serveLoads(t, &one{addresses: []string{pool[2].Address(), pool[1].Address(),
		pool[3].Address(), pool[0].Address()}}), "")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address}
	f.StartEnvoy(0)
	if err := pool[2].Close(); err != nil {
		t.Fatal(err)
	}
	const requests = 20
	for range requests {
		if got := f.Post(t, []byte("{}")); got != 1 {
			t.Errorf("server %d answered, want the second of the list", got)
		}
	}
	if got := f.EnvoyStat("cluster." + testbed.Cluster + "_picked.upstream_rq_retry"); got != requests {
		t.Errorf("%v retries, want %d: the first of the list is down", got, requests)
	}
}

// TestARefusalOfAStrictPickerReachesTheClient, with the status of the protocol: 429 for what is shed, and when to try
// again; 503 where there is no endpoint.
func TestARefusalOfAStrictPickerReachesTheClient(t *testing.T) {
	pool := testbed.Pool(t, 1)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: slices.Concat(testbed.AsGateway, testbed.Patient)})
	loads, address := startIdle(t, pool)
	p := testbed.StartPicker(t, f.Dir, address, "", "--strict")
	f.Eventually("the picker has loads", p.Ready)
	f.Plan.Bootstrap = []string{"--picker", p.Address}
	f.StartEnvoy(0)
	for _, c := range []struct {
		status     int
		text       string
		retryAfter string // empty: no header
		change     func(*loadsv1.Update)
	}{
		{http.StatusTooManyRequests, "saturated", "1", func(u *loadsv1.Update) { u.DropFraction = 1 }},
		{http.StatusServiceUnavailable, "no_endpoint", "", func(u *loadsv1.Update) { u.Endpoints = nil }},
		{http.StatusOK, "", "", func(*loadsv1.Update) {}},
	} {
		loads.Change.Store(&c.change)
		f.Eventually(fmt.Sprintf("the answer is a %d", c.status), func() error {
			resp := f.PostWith(t, []byte("{}"), modelsim.HeaderService, "0.001")
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != c.status || !strings.Contains(string(text), c.text)) {
				err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
			}
			if got := resp.Header.Get("Retry-After"); err == nil && got != c.retryAfter {
				t.Errorf("status %d: retry-after is %q, want %q", c.status, got, c.retryAfter)
			}
			return err
		})
	}
}

// An echo is a server that sends each piece of a body back at once.
type echo struct {
	address string
	served  atomic.Int64
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{}
	metrics := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: testbed.Pool(t, 1)[0].Address()})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			metrics.ServeHTTP(w, r)
			return
		}
		e.served.Add(1)
		stream := http.NewResponseController(w)
		_ = stream.EnableFullDuplex()
		_ = stream.Flush() // the headers
		piece := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(piece)
			_, _ = w.Write(piece[:n])
			_ = stream.Flush()
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	e.address = server.Listener.Addr().String()
	return e
}

// TestBodiesPassThePickerOfAGatewayWhole, in both directions and as they come: the client sends the second half of a
// body when it has the answer to the first. A picker that looks at prompts lets them pass, too.
func TestBodiesPassThePickerOfAGatewayWhole(t *testing.T) {
	for what, args := range map[string][]string{"by size": nil, "by prompt": {"--prefix"}} {
		t.Run(what, func(t *testing.T) {
			other, chosen := startEcho(t), startEcho(t)
			f := withoutEnvoys(t, testbed.Plan{Edits: slices.Concat(testbed.AsGateway, testbed.Patient),
				Cluster: fmt.Sprintf(
					"endpoints: {static: [{address: %s}, {address: %s}]}", other.address, chosen.address)})
			loads := serveLoads(t, &one{addresses: []string{chosen.address, other.address}})
			p := testbed.StartPicker(t, f.Dir, loads, "",
				args...)
			f.Eventually("the picker has loads", p.Ready)
			f.Plan.Bootstrap = []string{"--picker", p.Address}
			f.StartEnvoy(0)
			sent := int64(0)
			for _, size := range []int{0, 200, 48 << 10, 200 << 10, 3 << 20} {
				for _, length := range []int64{int64(size), -1} {
					if err := f.echoed(t, size, length); err != nil {
						t.Errorf("%d bytes, content-length %d: %v", size, length, err)
					}
					sent++
				}
			}
			if got := chosen.served.Load(); got != sent || other.served.Load() != 0 {
				t.Errorf("%d of %d requests went where the picker chose", got, sent)
			}
			if got := p.Choices(t, "fill"); got != float64(sent) {
				t.Errorf("%v choices, want %d", got, sent)
			}
		})
	}
}

// echoed wants a body of a size back as it was sent.
func (f *fleet) echoed(t *testing.T, size int, length int64) error {
	t.Helper()
	body := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(body)
	from, to := io.Pipe()
	defer from.Close() // ends the writer of a request that failed
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[0], from)
	if err != nil {
		return err
	}
	req.ContentLength = length
	more := make(chan struct{})
	go func() {
		_, _ = to.Write(body[:size/2])
		select {
		case <-more:
			_, _ = to.Write(body[size/2:])
			to.Close()
		case <-t.Context().Done():
		}
	}()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := make([]byte, size/2, size)
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		return fmt.Errorf("the first half: %w", err)
	}
	close(more)
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("the second half: %w", err)
	}
	if got = append(got, rest...); resp.StatusCode != http.StatusOK || !bytes.Equal(got, body) {
		return fmt.Errorf("status %d, and %d bytes came back, not those that were sent", resp.StatusCode, len(got))
	}
	return nil
}
