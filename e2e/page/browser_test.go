package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"steelyard/e2e/rig/proc"
)

// limit bounds the wait for a condition. It is generous: tests that promise a time measure it themselves.
const limit = 2 * time.Minute

// A browser is a running Chromium.
type browser struct {
	ctx context.Context
	t   testing.TB
}

// newBrowser starts Chromium with a profile of its own, for the length of the test.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	path, err := proc.Find(proc.ProgramChromium)
	if err != nil {
		t.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(60 * time.Second),
	}
	for _, flag := range []string{"disable-gpu", "disable-quic", "disable-background-networking",
		"disable-component-update", "disable-sync", "hide-scrollbars", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	alloc, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, end := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the process has ended and its profile can be removed
		end()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	return &browser{ctx, t}
}

// A tab is one of its pages, and what went wrong on it.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu     sync.Mutex
	errors []string // of the console

	width, height int64
}

// tab opens one of the given size.
func (b *browser) tab(t testing.TB, width, height int64) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx)
	t.Cleanup(end)
	p := &tab{t: t, ctx: ctx, width: width, height: height}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, log.Enable, chromedp.Void{})
		return err
	}))
	p.resize(width, height)
	return p
}

// hear notes what a developer would see in red.
func (p *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		words := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			words = fmt.Sprint(words, " ", e.ExceptionDetails.Exception.Description)
		}
		p.note("exception: " + words)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			words, _ := json.Marshal(e.Args)
			p.note(fmt.Sprintf("%s: %s", e.Type, words))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.note(fmt.Sprintf("%s: %s %v", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}
}

func (p *tab) note(words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, words)
}

// noErrors fails the test for what the console had since the last call. What a test provokes it names in allowed.
func (p *tab) noErrors(allowed ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, e := range p.errors {
		for _, a := range allowed {
			if strings.Contains(e, a) {
				continue next
			}
		}
		p.t.Errorf("console: %s", e)
	}
	p.errors = nil
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("browser: %v", err)
	}
}

// eval runs a script and reads its result, which may be a promise.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("browser: %s: %v", script, err)
	}
	return out
}

// resize gives the window another size.
func (p *tab) resize(width, height int64) {
	p.t.Helper()
	options := []chromedp.EmulateViewportOption{}
	if width < 500 {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	p.do(chromedp.EmulateViewport(width, height, options...))
	p.width, p.height = width, height
}

// until waits for a script to become true. A script that fails is not true yet: it may look for an element that the
// page is about to replace.
func (p *tab) until(what, script string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	var failed error
	for ctx.Err() == nil {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+script+")"))
		if err == nil && holds {
			return
		}
		failed = err
		time.Sleep(20 * time.Millisecond)
	}
	p.noErrors()
	p.t.Fatalf("not within %v: %s: %v\n%s", limit, what, failed,
		eval[string](p, "document.body.innerText.slice(0, 3000)"))
}

// navigate loads an address.
func (p *tab) navigate(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// heap returns what the scripts of the page use after a collection of garbage, in bytes.
func (p *tab) heap() int64 {
	p.t.Helper()
	var used int64
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, chromedp.Void{}); err != nil {
			return err
		}
		usage, err := chromedp.Call(ctx, runtime.GetHeapUsage, chromedp.Void{})
		used = int64(usage.UsedSize)
		return err
	}))
	return used
}

// open loads an address and waits until the page is live.
func (p *tab) open(url string) {
	p.t.Helper()
	p.navigate(url)
	p.live()
}

func (p *tab) live() {
	p.t.Helper()
	p.until("the page is live",
		"document.body && document.body.dataset.is === 'live' && !document.querySelector('#main .block')")
}

// text returns what an element shows; empty where there is none.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf("(document.querySelector(%q) || {}).innerText || ''", selector))
}

// key presses keys one after the other, as a person does.
func (p *tab) key(keys string) {
	p.t.Helper()
	for _, k := range keys {
		p.do(chromedp.KeyEvent(string(k)))
	}
}

// shot keeps a picture of the whole page in bin/page.
func (p *tab) shot(name string) {
	p.t.Helper()
	root, err := proc.Root()
	if err != nil {
		p.t.Fatal(err)
	}
	width, height := p.width, p.height
	// Pictures outside the window are not drawn, so the window is made as high as the page.
	p.resize(width, eval[int64](p, "Math.min(2600, Math.max(innerHeight, document.documentElement.scrollHeight))"))
	p.frames(3)
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	p.resize(width, height)
	dir := filepath.Join(root, "bin", "page")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// leave ends the stream, for which a server of the test would wait.
func (p *tab) leave() {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"))
}

// frames waits until the browser has drawn so many.
func (p *tab) frames(n int) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`new Promise((done) => {
		const next = (left) => (left ? requestAnimationFrame(() => next(left - 1)) : done(true));
		next(%d);
	})`, n))
}
