package modelsim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"steelyard/collectors/modelserver"
	"steelyard/sim/engine"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// batching returns the options of a server with an engine.
func batching(change ...func(*Options)) Options {
	p := engine.Defaults()
	o := Options{Batching: &p}
	for _, c := range change {
		c(&o)
	}
	return o
}

// inEngine runs f in a bubble in which time is exact, with a batcher.
func inEngine(t *testing.T, f func(t *testing.T, b *batcher)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		o, err := batching().withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		b := newBatcher(o)
		f(t, b)
		b.stop()
	})
}

func TestTheEngineRunsInRealTime(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		begin := time.Now()
		c := b.arrive(1200, 3, 1)
		<-c.news
		want(t, "time to first token", time.Since(begin), 120*time.Millisecond)
		<-c.news
		<-c.news
		want(t, "time of three", time.Since(begin), c.Last)
		want(t, "tokens", b.generated(c), 3)
		want(t, "in flight", b.inFlight(), 0)
		st := b.state()
		want(t, "served", st.served, 1)
		want(t, "end to end", st.totalTime.sum, c.Last)
		want(t, "prefill and decode", st.tokens.prefillTime.sum+st.tokens.decodeTime.sum, c.Last)
		want(t, "first token", st.tokens.firstToken.sum, 120*time.Millisecond)
		want(t, "tokens after another", st.tokens.interToken.n, 2)
		want(t, "tokens of iterations", st.tokens.iteration.sum, 1202*time.Second)
		want(t, "iterations", st.tokens.iteration.n, 3)
	})
}

// In real time and in simulated time the engine is the same: not a token differs.
func TestRealTimeIsSimulatedTime(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		random := rand.New(rand.NewPCG(1, 1))
		plain := engine.New(engine.Defaults())
		var calls []*call
		var requests []*engine.Request
		for range 300 {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(150*time.Millisecond)))
			prompt, output := 1+random.IntN(4000), 1+random.IntN(300)
			now := time.Since(b.began)
			calls = append(calls, b.arrive(prompt, output, random.IntN(3)))
			for next, ok := plain.Next(); ok && next <= now; next, ok = plain.Next() {
				plain.Step(next)
			}
			requests = append(requests, &engine.Request{Prompt: prompt, Output: output})
			plain.Arrive(now, requests[len(requests)-1])
		}
		for next, ok := plain.Next(); ok; next, ok = plain.Next() {
			plain.Step(next)
		}
		for b.inFlight() > 0 {
			time.Sleep(time.Second)
		}
		for i, r := range requests {
			if c := calls[i]; c.First != r.First || c.Last != r.Last {
				t.Fatalf("request %d: first and last token at %v and %v, simulated at %v and %v", i, c.First, c.Last,
					r.First, r.Last)
			}
		}
	})
}

func TestGaugesOfAnEngineLagByAnIteration(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		b.arrive(6000, 5, 0) // 520 ms
		time.Sleep(100 * time.Millisecond)
		b.arrive(100, 5, 0)
		st := b.state()
		want(t, "running and waiting, of two", fmt.Sprint(st.running, st.waiting, b.inFlight()), "1 0 2")
		time.Sleep(421 * time.Millisecond)
		st = b.state()
		want(t, "running and waiting in the next iteration", fmt.Sprint(st.running, st.waiting), "2 0")
		want(t, "prompt tokens", st.tokens.PromptTokens, 6000)
	})
}

func TestAnEngineContinuesAfterAFreezeWhereItStopped(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		begin := time.Now()
		c := b.arrive(1200, 1, 0)
		time.Sleep(60 * time.Millisecond)
		b.freeze()
		b.freeze() // twice is once
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "tokens when frozen", b.generated(c), 0)
		b.thaw()
		<-c.news
		want(t, "time to first token", time.Since(begin), time.Minute+120*time.Millisecond)
	})
}

func TestACallThatLeavesMakesRoom(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		c := b.arrive(1200, 1000, 0)
		time.Sleep(time.Second)
		b.leave(c)
		b.leave(c) // gone is gone
		time.Sleep(time.Second)
		st := b.state()
		want(t, "aborted, served and in flight", fmt.Sprint(st.aborted, st.served, b.inFlight()), "1 0 0")
		want(t, "calls that are remembered", len(b.calls), 0)
		c = b.arrive(10, 1, 0)
		<-c.news
		b.leave(c)
		want(t, "one that was done counts as aborted", b.state().aborted, 1)
	})
}

// post sends a body to an engine.
func post(ctx context.Context, t *testing.T, s *Server, path, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client(ctx).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// events returns the data of a stream.
func events(t *testing.T, body io.Reader) (all []string) {
	t.Helper()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				t.Fatalf("line %q of a stream", line)
			}
			all = append(all, data)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStreams(t *testing.T) {
	for _, c := range []struct {
		path, body string
		interval   int
		pieces     []int // tokens in each
	}{
		{"/v1/completions", `{"prompt": "Once upon", "max_tokens": 3, "stream": true}`, 0, []int{1, 1, 1}},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 8, ` +
			`"stream": true, "stream_options": {"include_usage": true}}`, 3, []int{1, 3, 3, 1}},
	} {
		s := start(t, batching(func(o *Options) { o.StreamInterval = c.interval }))
		resp := post(t.Context(), t, s, c.path, c.body)
		want(t, "content type", resp.Header.Get("Content-Type"), "text/event-stream; charset=utf-8")
		want(t, "server", resp.Header.Get(HeaderServer), s.Address())
		all := events(t, resp.Body)
		want(t, "last event", all[len(all)-1], "[DONE]")
		var pieces []int
		var reasons []string
		for _, data := range all[:len(all)-1] {
			var e struct {
				Choices []struct {
					Text         string
					Delta        struct{ Content string }
					FinishReason *string `json:"finish_reason"`
				}
				Usage *struct {
					PromptTokens     int `json:"prompt_tokens"`
					CompletionTokens int `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			for _, choice := range e.Choices {
				pieces = append(pieces, strings.Count(choice.Text+choice.Delta.Content, " token"))
				if choice.FinishReason != nil {
					reasons = append(reasons, *choice.FinishReason)
				}
			}
			if e.Usage != nil {
				want(t, "tokens of the prompt: 5 bytes and the template", e.Usage.PromptTokens, 2+4)
				want(t, "tokens generated", e.Usage.CompletionTokens, 8)
			}
		}
		want(t, c.path+": tokens in the pieces", fmt.Sprint(pieces), fmt.Sprint(c.pieces))
		want(t, "reasons to end", fmt.Sprint(reasons), "[length]")
		want(t, "usage is there", strings.Contains(all[len(all)-2], "usage"), strings.Contains(c.body, "usage"))
	}
}

// The header of a stream comes before the first token, and so is no sign of it.
func TestAStreamBeginsBeforeItsFirstToken(t *testing.T) {
	s := start(t, batching())
	s.SetFrozen(true)
	resp := post(t.Context(), t, s, "/v1/completions", `{"prompt": "x", "max_tokens": 1, "stream": true}`)
	want(t, "status of a stream on an engine that stands still", resp.StatusCode, http.StatusOK)
	s.SetFrozen(false)
	want(t, "events when it goes on", len(events(t, resp.Body)), 2)
}

func TestAnswersAsAWhole(t *testing.T) {
	s := start(t, batching(func(o *Options) { o.BytesPerToken = 2 }))
	for _, c := range []struct {
		path, body     string
		headers        []string
		prompt, output int
	}{
		{"/v1/completions", `{"prompt": "five!"}`, nil, 3, 16},
		{"/v1/completions", `{"prompt": [1, 2, 3, 4], "max_tokens": 2}`, nil, 4, 2},
		{"/v1/completions", `{"prompt": "x", "max_tokens": 2}`, []string{HeaderPromptTokens, "700"}, 700, 2},
		{"/v1/chat/completions", `{"messages": [{"content": "four"}, ` +
			`{"content": [{"type": "text", "text": "six six"}, ` +
			`{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}], "max_tokens": 1}`,
			nil, 2 + 4 + 4 + 1000 + 4, 1},
	} {
		resp := post(t.Context(), t, s, c.path, c.body, c.headers...)
		var got struct {
			Choices []struct {
				Text    string
				Message struct{ Content string }
			}
			Usage struct {
				PromptTokens     int `json:"prompt_tokens"`
				CompletionTokens int `json:"completion_tokens"`
				TotalTokens      int `json:"total_tokens"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK ||
			len(got.Choices) != 1 {
			t.Fatalf("%s: status %d, error %v, %+v", c.body, resp.StatusCode, err, got)
		}
		want(t, c.body+": tokens of text", strings.Count(got.Choices[0].Text+got.Choices[0].Message.Content, " token"),
			c.output)
		want(t, c.body+": prompt", got.Usage.PromptTokens, c.prompt)
		want(t, c.body+": answer", got.Usage.CompletionTokens, c.output)
		want(t, c.body+": both", got.Usage.TotalTokens, c.prompt+c.output)
	}
}

func TestRequestsThatAnEngineRefuses(t *testing.T) {
	s := start(t, batching(func(o *Options) { o.Batching.KVTokens = 1000 }))
	for _, c := range []struct {
		path, body string
		headers    []string
		status     int
		says       string
	}{
		{"/v1/completions", `{"prompt": `, nil, 400, "the body: "},
		{"/v1/completions", `{}`, nil, 400, "no prompt: want a text, a list of tokens, or messages"},
		{"/v1/completions", `{"prompt": 7}`, nil, 400, "no prompt"},
		{"/v1/completions", `{"prompt": ""}`, nil, 400, "0 tokens of prompt and 16 to generate"},
		{"/v1/completions", `{"prompt": "x", "max_tokens": 0}`, nil, 400, "1 tokens of prompt and 0 to generate"},
		{"/v1/completions", `{"prompt": "x", "max_tokens": 1000}`, nil, 400, "the context is of 1000"},
		{"/v1/completions", `{"prompt": "x"}`, []string{HeaderPromptTokens, "many"}, 400, "many"},
		{"/v1/chat/completions", `{"messages": [{"content": [{"type": "sound"}]}]}`, nil, 400, "message 0: no prompt"},
		{"/v1/embeddings", `{}`, nil, 404, "not found"},
	} {
		resp := post(t.Context(), t, s, c.path, c.body, c.headers...)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.says) {
			t.Errorf("%s: status %d and %q, error %v; want %d and %q", c.body, resp.StatusCode, body, err, c.status,
				c.says)
		}
	}
	want(t, "requests in flight", s.InFlight(), 0)
	for fault, status := range map[ServingFault]int{ServingUnavailable: 503, ServingFailing: 500, ServingHealthy: 200} {
		s.SetServingFault(fault)
		want(t, "status under a fault", post(t.Context(), t, s, "/v1/completions", `{"prompt": "x"}`).StatusCode,
			status)
	}
	want(t, "served", s.Served(), 1)
}

func TestAClientThatGoesAwayIsNoLoadOnAnEngine(t *testing.T) {
	s := start(t, batching())
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		var request sync.WaitGroup
		request.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+"/v1/completions",
				strings.NewReader(fmt.Sprintf(`{"prompt": "x", "max_tokens": 100000, "stream": %t}`, stream)))
			if resp, err := client(ctx).Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
		eventually(t, "the request runs", func() bool { return s.Running() == 1 })
		cancel()
		request.Wait()
		eventually(t, "its place is free", func() bool { return s.InFlight() == 0 && s.Running() == 0 })
	}
	want(t, "served", s.Served(), 0)
}

// What collectors read from the page of an engine is what the engine means, and the
// page has the shape of the recording.
func TestThePageOfAnEngine(t *testing.T) {
	inEngine(t, func(t *testing.T, b *batcher) {
		b.cached = 0.5
		for range 40 {
			b.arrive(3000, 50, 0)
		}
		time.Sleep(15 * time.Second)
		for range 12 {
			b.arrive(6000, 50, 0)
		}
		time.Sleep(600 * time.Millisecond)
		r := b.state()
		format := batchingFormat(engine.Defaults())
		body := string(newPage(format, true).render(r))
		if got := skeleton(body); !slices.Equal(got, skeleton(format.recording)) {
			t.Error("series and comments differ from the recording")
		}
		checkPage(t, values(t, body), b.engine)
		reader, err := modelserver.NewReader(modelserver.EngineVLLM, modelserver.Custom{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.Read([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		known := func(v float64) modelserver.Number { return modelserver.Number{Value: v, Known: true} }
		c, g := b.engine.Counters(), b.engine.Gauges()
		if g.Running == 0 || g.Waiting == 0 || c.Finished != 40 {
			t.Errorf("%+v and %+v say little", g, c)
		}
		wanted := modelserver.Report{
			Queue: known(float64(g.Waiting)), Running: known(float64(g.Running)), Utilization: known(g.KVUsage),
			BlockTokens: known(128), Awake: known(1),
			Completions: known(float64(c.Finished)), QueueSeconds: known(c.Queue.Seconds()),
			BusySeconds:  known((c.Prefill + c.Decode).Seconds()),
			PromptTokens: known(float64(c.PromptTokens)), CachedTokens: known(float64(c.CachedTokens)),
			GeneratedTokens: known(float64(c.GenerationTokens)),
			FirstTokens:     known(float64(c.FirstTokens)), Iterations: known(float64(c.Iterations)),
		}
		if diff := cmp.Diff(wanted, got, cmpopts.IgnoreUnexported(modelserver.Report{})); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
}

// checkPage compares every live series of tokens.
func checkPage(t *testing.T, got map[string]float64, e *engine.Engine) {
	t.Helper()
	c := e.Counters()
	const labels = `{engine="0",model_name="tiny"}`
	const source, all = `{engine="0",model_name="tiny",source=`, `_bucket{engine="0",le="+Inf",model_name="tiny"}`
	prompts := got["vllm:request_prompt_tokens_count"+labels]
	computed, later := float64(c.PromptTokens-c.CachedTokens), float64(c.GenerationTokens-c.FirstTokens)
	for name, value := range map[string]float64{
		"prompt_tokens_total" + labels:                                                   float64(c.PromptTokens),
		"prompt_tokens_cached_total" + labels:                                            float64(c.CachedTokens),
		"prompt_tokens_by_source_total" + source + `"local_compute"}`:                    computed,
		"prompt_tokens_by_source_total" + source + `"local_cache_hit"}`:                  float64(c.CachedTokens),
		"prompt_tokens_by_source_total" + source + `"external_kv_transfer"}`:             0,
		"prompt_tokens_cached_by_source_total" + source + `"device"}`:                    float64(c.CachedTokens),
		"prefix_cache_queries_total" + labels:                                            float64(c.PromptTokens),
		"prefix_cache_hits_total" + labels:                                               float64(c.CachedTokens),
		"generation_tokens_total" + labels:                                               float64(c.GenerationTokens),
		"num_preemptions_total" + labels:                                                 float64(c.Preemptions),
		"iteration_tokens_total_count" + labels:                                          float64(c.Iterations),
		"iteration_tokens_total_sum" + labels:                                            float64(c.IterationTokens),
		"time_to_first_token_seconds_count" + labels:                                     float64(c.FirstTokens),
		"time_to_first_token_seconds_sum" + labels:                                       c.TimeToFirstToken.Seconds(),
		"inter_token_latency_seconds_count" + labels:                                     later,
		"inter_token_latency_seconds_sum" + labels:                                       c.InterToken.Seconds(),
		"inter_token_latency_seconds" + all:                                              later,
		"request_prefill_time_seconds_sum" + labels:                                      c.Prefill.Seconds(),
		"request_prefill_time_seconds_count" + labels:                                    float64(c.Finished),
		"request_decode_time_seconds_sum" + labels:                                       c.Decode.Seconds(),
		"request_queue_time_seconds_sum" + labels:                                        c.Queue.Seconds(),
		"request_time_per_output_token_seconds_count" + labels:                           float64(c.Finished),
		"request_prompt_tokens_sum" + labels:                                             float64(3000 * c.Finished),
		"request_prompt_tokens" + all:                                                    prompts,
		"request_generation_tokens_sum" + labels:                                         float64(50 * c.Finished),
		"request_prefill_kv_computed_tokens_sum" + labels:                                computed - prefilled(e),
		`num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"}`: float64(e.Gauges().Waiting),
		`request_success_total{engine="0",finished_reason="length",model_name="tiny"}`:   float64(c.Finished),
		`request_max_num_generation_tokens_count` + labels:                               43, // as recorded
	} {
		if v, ok := got["vllm:"+name]; !ok || v != value {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, value)
		}
	}
	config := ""
	for series := range got {
		if strings.HasPrefix(series, "vllm:cache_config_info") {
			config = series
		}
	}
	if !strings.Contains(config, `kv_cache_size_tokens="400000"`) ||
		!strings.Contains(config, `num_gpu_blocks="3125"`) {
		t.Errorf("the configuration of the cache is %s", config)
	}
}

// prefilled returns the prompt tokens computed of requests that have a token and are not
// done.
func prefilled(e *engine.Engine) (tokens float64) {
	for _, r := range e.Running() {
		if r.Generated > 0 {
			tokens += float64(r.Prompt - r.Cached)
		}
	}
	return tokens
}

func TestAnEngineThatClaimsToBeIdle(t *testing.T) {
	s := start(t, batching())
	s.SetFrozen(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	post(ctx, t, s, "/v1/completions", `{"prompt": "x", "stream": true}`)
	running := func() float64 {
		status, body, err := scrape(t.Context(), s)
		if err != nil || status != http.StatusOK {
			t.Fatalf("status %d, error %v", status, err)
		}
		return values(t, body)[`vllm:num_requests_running{engine="0",model_name="tiny"}`]
	}
	eventually(t, "it runs", func() bool { return running() == 1 })
	s.SetMetricsFault(MetricsIdle)
	want(t, "running as claimed", running(), 0)
	want(t, "in flight", s.InFlight(), 1)
}

func TestOptionsThatAreNoneOfAnEngine(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		says   string
	}{
		{func(o *Options) { o.Engine = Triton }, "an engine that batches is vllm without ORCA reports, want no " +
			"engine triton"},
		{func(o *Options) { o.ORCA = ORCASlots }, `no ORCA "slots"`},
		{func(o *Options) { o.BytesPerToken = -1 }, "-1 bytes per token"},
		{func(o *Options) { o.Cached = 2 }, "2 cached"},
		{func(o *Options) { o.StreamInterval = -1 }, "stream interval -1"},
		{func(o *Options) { o.Batching.TokenBudget = 0 }, "token budget 0"},
	} {
		s, err := Start(batching(c.change))
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want it to say %q", err, c.says)
		}
	}
}

// go test -run '^$' -bench Engines ./e2e/rig/modelsim
//
// BenchmarkEngines is what twelve of them cost at 54 requests a second of about 200
// tokens: one operation is a second of that.
func BenchmarkEngines(b *testing.B) {
	var servers []*Server
	for range 12 {
		s, err := Start(batching(func(o *Options) { o.StreamInterval = 1 << 20 }))
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		servers = append(servers, s)
	}
	body := `{"prompt": "` + strings.Repeat("word ", 970) + `", "max_tokens": 211, "stream": true}`
	keep := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer keep.CloseIdleConnections()
	var requests sync.WaitGroup
	for b.Loop() {
		for i := range 54 {
			requests.Go(func() {
				resp, err := keep.Post("http://"+servers[i%12].Address()+"/v1/completions", "application/json",
					strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
			time.Sleep(time.Second / 54)
		}
	}
	requests.Wait()
}

func TestWorkIsOfEnginesOnly(t *testing.T) {
	slots, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer slots.Close()
	want(t, "work of slots is unknown", math.IsNaN(slots.Work(200)), true)
	inEngine(t, func(t *testing.T, b *batcher) {
		b.arrive(1200, 100, 0) // is taken up at once
		b.arrive(2400, 100, 0)
		want(t, "seconds", b.work(200), 0.2+2*100*120e-6)
	})
}

func TestAPromptThatGoesOnIsFoundInTheCacheWithTheAnswerBeforeIt(t *testing.T) {
	o := batching(func(o *Options) { o.Batching.CacheTokens, o.Batching.Iteration = 50_000, time.Millisecond })
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const answer = 300 // tokens
	question := strings.Repeat("what is a steelyard? ", 200)
	said := func(role, text string) string { return fmt.Sprintf(`{"role": %q, "content": %q}`, role, text) }
	ask := func(path, prompt string) (cached int) {
		t.Helper()
		before := s.Tokens()
		resp, err := http.Post("http://"+s.Address()+path, "application/json",
			strings.NewReader(fmt.Sprintf(`{"max_tokens": %d, %s}`, answer, prompt)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v", resp.StatusCode, err)
		}
		return s.Tokens().CachedTokens - before.CachedTokens
	}
	chat := func(messages ...string) int {
		return ask("/v1/chat/completions", `"messages": [`+strings.Join(messages, ",")+"]")
	}
	first, other := said("user", question), said("user", "Else: "+question)
	replied := said("assistant", strings.Repeat(" token", answer))
	prompt := int(float64(len(question)) / 4.2)
	want(t, "cached at first", chat(first), 0)
	if n := chat(first, replied, other); n < prompt+answer-engine.CacheBlock || n > prompt+answer+engine.CacheBlock {
		t.Errorf("%d tokens are cached of the next turn, want about %d", n, prompt+answer)
	}
	want(t, "cached of another conversation", chat(other), 0)
	want(t, "cached of a first prompt", ask("/v1/completions", fmt.Sprintf(`"prompt": %q`, question)), 0)
	n := ask("/v1/completions", fmt.Sprintf(`"prompt": %q`, question+" And what else?"))
	if n < prompt-engine.CacheBlock {
		t.Errorf("%d tokens are cached of a prompt that goes on, want about %d", n, prompt)
	}
}
