package page

import (
	"fmt"
	"testing"
)

// goneCluster follows links that a rename has left behind: the process is well, and the page says what is missing.
func goneCluster(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/renamed"))
	p.until("it says so", "document.querySelector('main').innerText.includes('There is no cluster renamed')")
	eval[string](p, "location.hash = '#/c/llama?range=5m'")
	p.until("the way out works", "document.querySelectorAll('tr[data-row]').length === 5")
	eval[string](p, "location.hash = '#/envoys?pool=renamed'")
	p.until("another pool is shown instead", "document.querySelector('table.unseen')")
	p.live()
	p.noErrors()
}

// hiddenTab hides a tab for longer than it holds its stream, with a clock that is put forward.
func hiddenTab(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	eval[bool](p, `(async () => {
		window.S = (await import('./assets/base.js')).S;
		const [later, now] = [window.setTimeout, performance.now.bind(performance)];
		let ahead = 0;
		window.setTimeout = (f, wait) => (wait !== 30000 ? later(f, wait) : later(() => { ahead = wait; f(); }, 0));
		performance.now = () => now() + ahead;
		window.hide = (hidden) => {
			Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
			document.dispatchEvent(new Event('visibilitychange'));
			return true;
		};
		return window.hide(true);
	})()`)
	p.until("nothing is received any more", "document.body.dataset.is === 'stale'")
	if n := eval[int](p, "window.S.attempt"); n != 0 {
		t.Errorf("a hidden tab tried %d times to open its stream again", n)
	}
	eval[bool](p, "window.hide(false)")
	p.live()
	p.noErrors()
}

// notAnswered blocks the numbers of the endpoints, and not the stream.
func notAnswered(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/c/llama?range=5m"))
	eval[bool](p, `(() => {
		window.answered = window.fetch;
		window.fetch = (url, ...more) => (/clusters.llama$/.test(url) ? Promise.reject(new Error('blocked'))
			: window.answered(url, ...more));
		return true;
	})()`)
	p.until("it says what is old", `document.body.dataset.is === 'late' &&
		/no answer for/.test(document.getElementById('live').innerText) &&
		/from before .* UTC: blocked/.test(document.getElementById('old').innerText)`)
	eval[bool](p, "(window.fetch = window.answered, true)")
	p.live()
	p.until("nothing is old", "document.getElementById('old').hidden")
	p.noErrors()
}

// manyEnvoys has a list that is cut off: what counts all Envoys does not count those listed.
func manyEnvoys(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/events"))
	eval[bool](p, `(() => {
		const fetch = window.fetch;
		window.fetch = async (url, ...more) => {
			const answer = await fetch(url, ...more);
			if (!/clients/.test(url)) return answer;
			const list = await answer.json();
			list.clients = Array.from({ length: 300 }, (_, i) => ({ ...list.clients[0], node_id: 'gw-' + i }));
			return Response.json({ ...list, total: 4321, left: [] });
		};
		location.hash = '#/envoys';
		return true;
	})()`)
	p.until("the button has the number of all", "document.querySelector('p.rest')?.innerText.includes('4,321')")
	p.until("the sentence does not count the list", "/3 of 3 follow/.test(document.querySelector('.lead').innerText)")
	p.noErrors()
}

// stalledWords has the answer of an endpoint that stalled some minutes ago: nothing there is shown as current,
// or as set by the level.
func stalledWords(t *testing.T, f *fleet, b *browser) {
	p := b.tab(t, 1280, 900)
	p.open(f.url("#/"))
	address := f.embed[0].Address()
	eval[bool](p, fmt.Sprintf(`(() => {
		const fetch = window.fetch;
		window.fetch = async (url, ...more) => {
			const answer = await fetch(url, ...more);
			if (!/clusters.embed$/.test(url)) return answer;
			const c = await answer.json();
			Object.assign(c.endpoints.find((e) => e.address === %[1]q), { state: 'outlier', latency_seconds: .44,
				latency_age_seconds: 517, first_token_mean_seconds: null });
			return Response.json(c);
		};
		location.hash = '#/c/embed/e/%[1]s';
		return true;
	})()`, address))
	p.until("it has the age of the answers",
		`document.querySelector('.stack')?.innerText.replaceAll('\u00a0', ' ').includes('0.44 s (8 min 37 s old)')`)
	p.until("it has the state in place of the level",
		"document.querySelector('.steps').innerText.includes('It is stalled or failing')")
	p.until("the step and the strip count the same Envoys", `document.querySelector('.steps').innerText
		.includes('3 of 3 Envoys') && document.getElementById('chain').innerText.includes('3 of 3')`)
	p.noErrors()
}
