package page

import "testing"

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
		window.setTimeout = (f, wait) => later(() => { if (wait === 30000) ahead = 30000; f(); }, wait === 30000 ? 0 : wait);
		performance.now = () => now() + ahead;
		window.hide = (hidden) => {
			Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
			document.dispatchEvent(new Event('visibilitychange'));
			return true;
		};
		return window.hide(true);
	})()`)
	p.until("nothing is heard any more", "document.body.dataset.is === 'stale'")
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
