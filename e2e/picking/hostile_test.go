package picking

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/e2e/rig/testbed"
)

var hostileBodies = flag.Int("bodies", 20_000, "mutated bodies sent through the module; ten million took 16 minutes")

// TestNoBodyBreaksTheModuleOrItsEnvoy: mutated prompts, whole, in chunks and broken off. Each that is sent whole
// arrives whole and is answered, the module counts no panic, and chooses afterwards as before.
func TestNoBodyBreaksTheModuleOrItsEnvoy(t *testing.T) {
	testbed.WithModule(t)
	var addresses []string
	endpoints := "endpoints:\n  static:\n"
	for range 2 {
		address := strings.TrimPrefix(swallow(t, 1<<40).URL, "http://")
		addresses = append(addresses, address)
		endpoints += "  - {address: " + address + "}\n"
	}
	f := withoutEnvoys(t, testbed.Plan{Cluster: endpoints})
	_, loads := testbed.StartIdleAt(t, addresses...)
	f.follows(loads, "--prefix")
	f.StartEnvoy(0)
	f.Eventually("the module has loads", func() error {
		f.pass(t, http.DefaultClient, []byte("{}"), "plain")
		if f.Choices(t, 0, "fill") == 0 {
			return fmt.Errorf("no choice")
		}
		return nil
	})
	const workers = 16
	var sent, broken atomic.Int64
	var clients sync.WaitGroup
	for w := range workers {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: testbed.Limit}
			for sent.Add(1) <= int64(*hostileBodies) && !t.Failed() {
				h := mutated(random)
				if h.brokenOff > 0 {
					broken.Add(1)
				}
				if err := sendHostile(t.Context(), client, f.URLs[0], h); err != nil {
					t.Errorf("%v: %.300q", err, h.body)
				}
			}
		})
	}
	began := time.Now()
	clients.Wait()
	t.Logf("%d bodies in %.0f s, %d of them broken off", *hostileBodies, time.Since(began).Seconds(), broken.Load())
	if got := f.EnvoyStat("dynamicmodulescustom.picker_panics"); got != 0 {
		t.Errorf("%v panics of the module", got)
	}
	if f.Choices(t, 0, "prefix") == 0 {
		t.Error("no body was a prompt that the module had seen before")
	}
	before := f.Choices(t, 0, "fill") + f.Choices(t, 0, "prefix")
	f.pass(t, http.DefaultClient, []byte("{}"), "plain")
	if got := f.Choices(t, 0, "fill") + f.Choices(t, 0, "prefix") - before; got != 1 {
		t.Errorf("%v choices for a request afterwards, want 1", got)
	}
}

// A hostile request is a body and how it is sent.
type hostile struct {
	body        []byte
	contentType string
	chunked     bool
	brokenOff   int // bytes after which the client leaves; 0: it does not
}

// prompts that hostile bodies are made of.
var prompts = []string{
	`{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("You are helpful. ", 200) +
		`"},{"role":"user","content":[{"type":"text","text":"a \"quoted\" \u00e9 text"}]}],"stream":true}`,
	`{"model":"m","prompt":["` + strings.Repeat("once upon a time ", 400) + `"],"max_tokens":16}`,
	`{"prompt":[[128006,9125,128007` + strings.Repeat(",1234", 1000) + `],[128006,882,128007]]}`,
	`{"system":[{"type":"text","text":"x"}],"messages":[{"role":"user","content":"y"}],"tools":[{"name":"z"}]}`,
	`{"input_ids":[` + strings.Repeat("151644,1,22,333,", 40) + `1]}`,
	strings.Repeat(`{"messages":[`, 200), strings.Repeat(`[`, 3000), strings.Repeat(`{"prompt":"\\`, 200), "",
}

// mutated makes a request from a prompt or several, changed at random.
func mutated(random *rand.Rand) hostile {
	const large = 300 << 10 // more than the module looks at
	pick := func() []byte { return []byte(prompts[random.IntN(len(prompts))]) }
	body := pick()
	for range random.IntN(6) {
		from := random.IntN(len(body) + 1)
		to := from + random.IntN(len(body)-from+1)
		switch random.IntN(7) {
		case 0:
			body = append(body[:from:from], body[to:]...)
		case 1:
			body = append(body[:to:to], body[from:]...) // a part comes twice
		case 2:
			body = body[:from]
		case 3:
			body = append(body[:from:from], pick()...)
		case 4:
			for i := from; i < min(to, from+16); i++ {
				body[i] = byte(random.Uint32())
			}
		case 5:
			const structure = `{}[]",:\0-e.` + "\x00\xff\n"
			body = slices.Insert(body, from, structure[random.IntN(len(structure))])
		case 6:
			if random.IntN(200) == 0 {
				body = bytes.Repeat(body, 1+large/(len(body)+1))
			}
		}
	}
	types := [...]string{"application/json", "application/json; charset=utf-8", "application/JSON", "text/plain", ""}
	h := hostile{body: body, contentType: types[random.IntN(len(types))], chunked: random.IntN(6) == 0}
	if len(body) > 1 && random.IntN(40) == 0 {
		h.brokenOff = 1 + random.IntN(len(body)-1)
	}
	return h
}

// sendHostile sends a request, and checks the answer to one that is not broken off.
func sendHostile(ctx context.Context, client *http.Client, address string, h hostile) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var from io.Reader = bytes.NewReader(h.body)
	if h.brokenOff > 0 {
		from = io.MultiReader(bytes.NewReader(h.body[:h.brokenOff]), leaver(leave))
	} else if h.chunked {
		from = struct{ io.Reader }{from}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, from)
	if err != nil {
		return err
	}
	if h.brokenOff > 0 && !h.chunked {
		req.ContentLength = int64(len(h.body))
	}
	if h.contentType != "" {
		req.Header.Set("Content-Type", h.contentType)
	}
	resp, err := client.Do(req)
	if h.brokenOff > 0 {
		if err == nil {
			resp.Body.Close()
		}
		return nil
	}
	if err != nil {
		return err
	}
	return arrivedWhole(resp, h.body)
}

// A leaver is a reader at which the client leaves.
type leaver context.CancelFunc

func (l leaver) Read([]byte) (int, error) {
	l()
	return 0, context.Canceled
}
