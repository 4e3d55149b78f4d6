// Wires the page: routes, the stream, keys, and drawing what has changed.
import { act, clock, h, lasts, patch, R, S, sign } from './base.js';
import { isPainted, paint, readColours, timeAt } from './charts.js';
import { ask, loadClients, loadEvents, loadHeads, loadHistory, loadProcess, setRows, take } from './store.js';
import * as views from './views.js';

const byId = (id) => document.getElementById(id);
const kept = {
	get: (name) => { try { return localStorage.getItem('steelyard-' + name) || ''; } catch { return ''; } },
	set: (name, v) => { try { localStorage.setItem('steelyard-' + name, v); } catch { /* not kept, then */ } },
};

// ---- Routes: all of a view stands behind the #.

const decode = (s) => { try { return decodeURIComponent(s); } catch { return s; } };
function readRoute() {
	const [path, query = ''] = location.hash.replace(/^#/, '').split('?');
	const q = new URLSearchParams(query);
	const parts = path.split('/').filter(Boolean).map(decode);
	const view = parts[0] === 'c' && parts[1] ? (parts[2] === 'e' && parts[3] ? 'endpoint' : 'cluster')
		: ['envoys', 'events'].includes(parts[0]) ? parts[0] : 'fleet';
	const one = (name, list) => (list.includes(q.get(name)) ? q.get(name) : list[0]);
	return {
		view, cluster: view === 'cluster' || view === 'endpoint' ? parts[1] : '', endpoint: view === 'endpoint'
			? parts.slice(3).join('/') : '',
		range: one('range', ['15m', ...views.rangeNames]), q: (q.get('q') || '').slice(0, 200), state: one('state',
			['', ...views.stateOrder]),
		sort: one('sort', ['state', ...views.sortable]), up: q.get('up') === '1', kind: one('kind',
			['', ...views.eventGroups]),
		pool: view === 'envoys' ? q.get('pool') || '' : '',
	};
}
const pathOf = (r) => (r.view === 'endpoint' ? views.endpointPath(r.cluster, r.endpoint) : r.view === 'cluster'
	? views.clusterPath(r.cluster)
	: r.view === 'fleet' ? '/' : '/' + r.view);
const hashOf = (r) => views.link(pathOf(r), { q: r.q, state: r.state, sort: r.sort === 'state' ? '' : r.sort,
	up: r.up ? '1' : '', kind: r.kind, pool: r.pool }, r);

function go(hash) {
	location.hash = hash;
	route();
}
function route() {
	const was = { ...R };
	Object.assign(R, readRoute());
	const moved = was.view !== R.view || was.cluster !== R.cluster || was.endpoint !== R.endpoint;
	if (moved) {
		S.chosen = -1;
		S.cursor = null;
		S.window = { from: 0, to: 60 };
		S.allIncidents = false;
		if (was.view) {
			scrollTo(0, 0);
			byId('main').focus({ preventScroll: true });
		}
	}
	const filter = byId('filter');
	if (filter && filter.value !== R.q && document.activeElement !== filter) filter.value = R.q;
	if (moved || was.range !== R.range || was.pool !== R.pool) afresh();
	if (streamPath() !== stream.path) open();
	render();
	step();
}

// ---- The stream.

const stream = { source: null, path: '', opened: 0 };
const waits = [500, 1000, 2000, 4000];
const quiet = { reconnecting: 2000, stale: 3500 }; // milliseconds without a frame; one comes each second

function streamPath() {
	const q = new URLSearchParams();
	const all = S.fleet?.clusters || [{ name: R.pool }];
	const pool = R.view === 'envoys' ? (all.find((c) => c.name === R.pool) || all[0])?.name : R.cluster;
	if (pool) q.set('cluster', pool);
	if (R.endpoint) q.set('endpoint', R.endpoint);
	if (R.view === 'envoys' || R.view === 'endpoint') q.set('matrix', '1');
	return 'api/v1/stream?' + q;
}
function open() {
	clearTimeout(stream.timer);
	stream.waiting = false;
	stream.source?.close();
	stream.path = streamPath();
	stream.opened = performance.now();
	const source = new EventSource(stream.path);
	stream.source = source;
	source.addEventListener('frame', (e) => {
		if (stream.source !== source) return;
		receive(JSON.parse(e.data));
	});
	source.onerror = () => {
		if (stream.source !== source) return;
		source.close();
		again();
	};
}
// again opens the stream after a while, unless the tab is hidden and let go of it.
function again() {
	if (stream.waiting || !stream.path) return;
	stream.waiting = true;
	const wait = waits[Math.min(S.attempt, waits.length - 1)] * (0.9 + 0.2 * Math.random());
	S.attempt++;
	S.lost = S.lost || performance.now();
	stream.timer = setTimeout(open, wait);
	if (S.attempt === 2) ask('events?limit=1').catch(() => {}); // whose answer is 401 after the end of a session
	showLive();
}
function receive(frame) {
	S.heardAt = performance.now();
	S.attempt = 0;
	S.lost = 0;
	if (S.is === 'paused') {
		S.pending = frame;
		return;
	}
	const back = S.is !== 'live';
	apply(frame, back);
}
function apply(frame, back) {
	const needsRows = take(frame);
	S.is = 'live';
	if (back) afresh();
	if (needsRows) wanted.delete('rows');
	if (frame.fleet.last_event_id !== S.lastEvent) {
		S.lastEvent = frame.fleet.last_event_id;
		S.eventsUntil = performance.now() + 7000; // an event grows for five seconds
	}
	if (streamPath() !== stream.path) open();
	showLive();
	render();
	step();
	announce();
}

// ---- What is asked for, and how often.

const wanted = new Map(); // name → when it was asked for
const due = new Map(); // name → since when it is not answered
const busy = new Set();
// want asks again when the last answer is older than every ms, and after a second if there was none.
function want(name, every, f) {
	const at = performance.now();
	if (busy.has(name) || (wanted.has(name) && at - wanted.get(name) < every)) return;
	wanted.set(name, at);
	if (!due.has(name)) due.set(name, at);
	busy.add(name);
	f().then(() => { due.delete(name); later(); }, (error) => {
		S.error = error.message;
		if (due.has(name)) wanted.set(name, performance.now() + 1000 - every);
	}).finally(() => busy.delete(name));
}
function afresh() {
	wanted.clear();
	due.clear();
}
// owing is for how many seconds something that is shown was not answered.
const owing = () => (performance.now() - Math.min(...due.values())) / 1000;
function step() {
	if (!S.fleet || S.is === 'paused' || S.is === 'stale') return;
	const names = S.fleet.clusters.map((c) => c.name);
	want('heads', 5000, loadHeads);
	want('process', 5000, loadProcess);
	want('clients', R.view === 'envoys' || R.view === 'fleet' ? 2000 : 5000, () => loadClients());
	if (!wanted.has('events') || due.has('events') || performance.now() < (S.eventsUntil || 0))
		want('events', 2000, loadEvents);
	const n = S.cluster ? S.cluster.endpoint_counts.total : 0;
	if (R.cluster && names.includes(R.cluster)) {
		const name = R.cluster;
		want('rows', Math.max(1000, 10 * n), async () => {
			const c = await ask('clusters/' + encodeURIComponent(name));
			if (c && c.name === R.cluster) {
				setRows(c);
				S.rev++;
			}
		});
	}
	const every = Math.max(2500, (1000 * views.rangeSeconds()) / 100, R.view === 'cluster' ? 8 * n : 0);
	const shown = R.cluster ? names.filter((x) => x === R.cluster) : R.view === 'fleet' ? names.slice(0, 30)
		: R.view === 'events' ? names.slice(0, 8) : [];
	if (R.cluster && S.rowsOf !== R.cluster) return; // a history needs the endpoints
	if (!S.heads.size) return;
	for (const name of shown) {
		want('history ' + name, every, () => loadHistory(name));
	}
}

// ---- Whether it is live.

setInterval(() => {
	const silent = performance.now() - S.heardAt;
	if (S.fleet && S.is !== 'paused') {
		if (silent > quiet.stale) S.is = 'stale';
		else if (silent > quiet.reconnecting || (S.lost && performance.now() - S.lost > 1000)) S.is = 'reconnecting';
	}
	if (S.is === 'stale' || S.is === 'reconnecting') {
		if (silent > 5000 && performance.now() - stream.opened > 5000) again(); // open, and without a word
		if (S.is !== S.drawnIs) render();
	}
	if (S.is === 'loading' && silent > 3000) {
		if (performance.now() - stream.opened > 4000) again();
		showWaiting();
	}
	showLive();
	if (S.is === 'live') step();
}, 250);

function showWaiting() {
	if (S.attempt < 2) return;
	want('reachable', 10000, async () => { // what answers at once is not the connection
		if (await ask('session')) S.error = views.heldBack;
	});
	patch(byId('main'), [views.noAnswer()]);
}
let spoken = '';
function showLive() {
	const silent = (performance.now() - S.heardAt) / 1000;
	const at = S.now ? clock(S.now) : '';
	const owes = owing();
	const is = S.is === 'live' && owes > 3 ? 'late' : S.is;
	const words = {
		loading: ['none', 'Connecting', performance.now() > 3000 ? 'to ' + new URL(stream.path || '.',
			location.href).pathname : ''],
		live: ['good', 'Live', at], paused: ['paused', 'Paused', 'at ' + at + ', ' + lasts(Math.max(0,
			(performance.now() - S.pausedAt) / 1000)) + ' ago'],
		reconnecting: ['warning', 'Reconnecting', S.attempt > 1 ? 'attempt ' + S.attempt : ''], stale: ['error', 'Stale',
			'no word for ' + lasts(silent)], late: ['warning', 'In part', 'no answer for ' + lasts(owes)],
	}[is];
	const live = byId('live');
	live.dataset.is = document.body.dataset.is = is;
	patch(live, [sign(words[0]), words[1], h('span', words[2])]);
	const old = byId('old');
	old.hidden = is !== 'stale' && is !== 'late';
	if (is === 'late') patch(old.firstElementChild, ['Part of this is from before ' + clock(S.now - owes) + ' UTC: ' +
		(S.error || 'no answer') + '.']);
	if (S.is === 'stale') {
		patch(old.firstElementChild, ['No word from Steelyard for ' + lasts(silent) + ': this is the state of ' + at +
			' UTC, and what holds now is not known.',
			h('small', views.goesOn)]);
	}
	const say = S.is === 'stale' ? 'Stale: no word from Steelyard' : S.is === 'live' && spoken ? 'Live again' : '';
	if (say !== spoken && (say || spoken)) {
		if (S.is === 'stale' || S.is === 'live') byId('spoken').textContent = say;
		spoken = S.is === 'stale' ? say : '';
	}
}
// announce reads out incidents that are new, once.
let heardOf = null;
function announce() {
	const ids = new Set(S.fleet.incidents.map((i) => i.id));
	const fresh = heardOf && S.fleet.incidents.filter((i) => !heardOf.has(i.id));
	heardOf = ids;
	if (fresh && fresh.length) byId('spoken').textContent = fresh.map((i) => i.title).slice(0, 3).join('. ');
}
function pause() {
	if (S.is === 'paused') {
		S.is = 'live';
		afresh();
		if (S.pending) apply(S.pending, true);
		S.pending = null;
	} else if (S.is === 'live') {
		S.is = 'paused';
		S.pausedAt = performance.now();
	}
	showLive();
	render();
}

// ---- Drawing.

let asked = false;
function later() {
	if (asked || S.is === 'paused') return;
	asked = true;
	requestAnimationFrame(() => { asked = false; render(); });
}
function render() {
	if (!S.fleet) {
		if (R.view !== 'fleet' && S.is === 'loading' && !S.error) patch(byId('main'), views.loadingBlocks());
		return;
	}
	S.drawnIs = S.is;
	const errors = S.fleet.incidents.filter((i) => i.severity === 'error').length;
	document.title = (S.is === 'stale' ? '(stale) ' : errors ? '(' + errors + ') ' : '') + (R.endpoint || R.cluster ||
		{ envoys: 'Envoys', events: 'Events' }[R.view] || 'Fleet') + ' – Steelyard';
	patch(byId('views'), [['fleet', '/', 'Fleet'], ['envoys', '/envoys', 'Envoys'], ['events', '/events', 'Events']].map(
		([view, path, name]) => h('a', {
		href: views.link(path), 'aria-current': R.view === view || (view === 'fleet' && R.cluster) ? 'page' : null,
	}, name, view === 'fleet' && errors > 0 && h('span.count', { title: errors + (errors === 1 ? ' incident'
		: ' incidents') }, errors))));
	patch(byId('range'), views.rangeNames.map((name) => h('button', { 'aria-pressed': String(R.range === name),
		onclick: () => act.query({ range: name }) }, name.replace(/(\d+)/, '$1 '))));
	patch(byId('chain').firstElementChild, S.is === 'stale' ? [h('h2', 'Steelyard itself'), sign('none'), h('span.soft',
		' not known since ' + clock(S.now) + ' UTC')] : views.chain());
	patch(byId('trouble'), views.trouble());
	const main = byId('main');
	if (main.dataset.first) {
		main.textContent = '';
		delete main.dataset.first;
	}
	const view = { fleet: views.fleetView, cluster: views.clusterView, endpoint: views.endpointView,
		envoys: views.envoysView, events: views.eventsView }[R.view];
	placeWindow();
	patch(main, [view()]);
	if (placeWindow()) patch(main, [view()]);
	paintAll();
}
function paintAll() {
	for (const canvas of document.querySelectorAll('canvas')) {
		const box = canvas.getBoundingClientRect();
		if (box.bottom > -200 && box.top < innerHeight + 200 && !isPainted(canvas)) paint(canvas);
	}
}
// placeWindow works out which rows of the table are on the screen. It returns whether that changed.
function placeWindow() {
	const body = document.querySelector('#endpoints tbody');
	const first = body && body.querySelector('tr[data-row]');
	if (!first) return false;
	const high = first.getBoundingClientRect().height || S.rowHeight;
	const n = S.listed.length;
	const top = -body.getBoundingClientRect().top;
	let from = Math.max(0, Math.floor(top / high) - 10);
	let to = Math.ceil((top + innerHeight) / high) + 10;
	if (n <= 80) [from, to] = [0, n];
	[from, to] = [Math.min(from - (from % 4), Math.max(0, n - 20)), Math.max(20, to + 4 - (to % 4))];
	const changed = S.rowHeight !== high || S.window.from !== from || S.window.to !== to;
	S.rowHeight = high;
	S.window = { from, to };
	return changed;
}
let scrolling = false;
addEventListener('scroll', () => {
	if (scrolling) return;
	scrolling = true;
	requestAnimationFrame(() => {
		scrolling = false;
		if (S.fleet && R.view === 'cluster' && placeWindow()) render();
		else paintAll();
	});
}, { passive: true });
addEventListener('resize', () => { later(); });
S.squareWidth = (zones) => {
	const width = byId('main').clientWidth - 34;
	const per = Math.max(1, Math.min(zones, Math.floor((width + 16) / 266)));
	return (width - 16 * (per - 1)) / per;
};

// ---- What the views can do.

Object.assign(act, {
	query(change, replace) {
		const next = { ...R, ...change };
		S.chosen = -1;
		if (replace) {
			history.replaceState(null, '', hashOf(next));
			route();
		} else go(hashOf(next));
	},
	sort(id) {
		const up = R.sort === id ? !R.up : id === 'name';
		act.query({ sort: id, up });
	},
	open(id, open) { S.opened.set(id, open); render(); },
	all(what) { S['all' + what] = true; wanted.delete('clients'); step(); render(); },
	step(by) {
		const list = views.tableRows([...S.rows], { ...R, q: '', state: '' });
		const at = list.findIndex((r) => r.address === R.endpoint);
		const next = list[at + by];
		if (next) go(views.link(views.endpointPath(R.cluster, next.address)));
	},
	help(open) { open ? showHelp() : byId('help').close(); },
	async copy(words, button) {
		try { await navigator.clipboard.writeText(words); } catch { select(button.previousElementSibling); return; }
		button.textContent = 'Copied';
		setTimeout(() => { button.textContent = 'Copy'; }, 1500);
	},
});
function select(e) {
	const range = document.createRange();
	range.selectNodeContents(e);
	getSelection().removeAllRanges();
	getSelection().addRange(range);
}
function showHelp() {
	patch(byId('help'), views.helpView());
	if (!byId('help').open) byId('help').showModal();
}
const dark = matchMedia('(prefers-color-scheme: dark)');
function setTheme(theme) {
	if (theme) document.documentElement.dataset.theme = theme;
	S.theme = theme || (dark.matches ? 'dark' : 'light');
	readColours();
	render();
}
function otherTheme() {
	const next = S.theme === 'dark' ? 'light' : 'dark';
	kept.set('theme', next);
	setTheme(next);
}
dark.addEventListener('change', () => setTheme(kept.get('theme')));

// ---- Find.

const found = new Map(); // name → route
async function openFind() {
	byId('find').classList.add('open');
	byId('finder').focus();
	if (!S.fleet || performance.now() - (S.foundAt || -1e9) < 30000) return;
	S.foundAt = performance.now();
	found.clear();
	const add = (name, kind, route1) => found.set(found.has(name) ? name + ' in ' + kind : name, [kind, route1]);
	for (const c of S.fleet.clusters) add(c.name, 'cluster', views.link(views.clusterPath(c.name)));
	for (const e of S.envoys) add(e.name, 'Envoy', views.link('/envoys', { q: e.name }));
	for (const { name } of S.fleet.clusters.slice(0, 50)) {
		const c = await ask('clusters/' + encodeURIComponent(name)).catch(() => null);
		for (const e of c ? c.endpoints : []) add(e.address, name, views.link(views.endpointPath(name, e.address)));
	}
	patch(byId('found'), [...found].map(([name, [kind]]) => h('option', { key: name, value: name }, kind)));
}
function find(route1) {
	byId('finder').value = '';
	byId('finder').blur();
	byId('find').classList.remove('open');
	if (route1) go(route1[1]);
}
byId('finder').onfocus = openFind;
byId('finder').oninput = (e) => { if (found.has(e.target.value) && e.inputType !== 'insertText') find(
	found.get(e.target.value)); };
byId('finder').onkeydown = (e) => {
	const q = e.target.value.toLowerCase();
	if (e.key === 'Enter' && q) find([...found].find(([name]) => name.toLowerCase().includes(q))?.[1]);
	else if (e.key === 'Escape') find();
};

// ---- Keys.

let goes = -Infinity; // when g was pressed
function choose(by) {
	if (R.view === 'endpoint') return act.step(by);
	if (R.view !== 'cluster') return undefined;
	S.chosen = Math.max(0, Math.min(S.listed.length - 1, S.chosen + by));
	const body = document.querySelector('#endpoints tbody');
	if (body) {
		const y = body.getBoundingClientRect().top + S.chosen * S.rowHeight;
		if (y < 110 || y > innerHeight - 80) scrollBy(0, y - innerHeight / 2);
	}
	placeWindow();
	return render();
}
function up() {
	if (R.view === 'endpoint') go(views.link(views.clusterPath(R.cluster)));
	else if (R.view !== 'fleet') go(views.link('/'));
}
const keys = {
	'/': () => setTimeout(() => (byId('filter') || byId('finder')).focus()), f: () => setTimeout(openFind),
	j: () => choose(1), k: () => choose(-1), u: up,
		d: otherTheme, '?': showHelp, ' ': pause,
	t: () => act.query({ range: views.rangeNames[(views.rangeNames.indexOf(R.range) + 1) % 3] }),
	Enter: () => { const r = S.listed[S.chosen]; if (R.view === 'cluster' &&
		r) go(views.link(views.endpointPath(R.cluster, r.address))); },
	g: () => { goes = performance.now(); },
};
const goKeys = { f: '/', e: '/envoys', v: '/events' };
addEventListener('keydown', (e) => {
	const typing = e.target.closest('input, select, textarea');
	if (e.key === 'Escape' && typing) e.target.blur();
	if (typing || e.ctrlKey || e.metaKey || e.altKey || byId('help').open) return;
	const onButton = e.target.closest('button, a, summary, [tabindex="0"]');
	if (onButton && (e.key === 'Enter' || e.key === ' ')) return;
	const second = performance.now() - goes < 1500 && goKeys[e.key];
	goes = -Infinity;
	if (second) go(views.link(second));
	else if (keys[e.key]) keys[e.key]();
	else return;
	e.preventDefault();
});

// ---- The pointer over pictures.

function under(e) {
	const canvas = e.target.closest?.('canvas');
	if (!canvas || !canvas.under) return {};
	const box = canvas.getBoundingClientRect();
	return { canvas, x: e.clientX - box.left, y: e.clientY - box.top, w: box.width };
}
function showTip(e, lines) {
	const tip = byId('tip');
	tip.hidden = !lines || !lines.length;
	if (tip.hidden) return;
	patch(tip, [h('b', lines[0]), ...lines.slice(1).filter(Boolean).flatMap((l, i) => (i ? [h('br'), l] : [l]))]);
	const box = tip.getBoundingClientRect();
	tip.style.left = Math.max(4, Math.min(innerWidth - box.width - 8, e.clientX + 14)) + 'px';
	tip.style.top = (e.clientY + 18 + box.height > innerHeight ? e.clientY - box.height - 10 : e.clientY + 18) + 'px';
}
addEventListener('pointermove', (e) => {
	const { canvas, x, y, w } = under(e);
	const route1 = canvas?.under.go?.(x, y);
	if (canvas) canvas.style.cursor = route1 ? 'pointer' : '';
	showTip(e, canvas?.under.tip?.(x, y));
	const history1 = canvas?.closest('[data-stack]') && S.histories.get(R.cluster || S.fleet.clusters[0].name);
	let cursor = null;
	if (history1) {
		const t = timeAt(x, w, history1.span);
		if (t > history1.span.from && t <= history1.span.to) cursor = t;
	}
	if (cursor !== S.cursor) {
		S.cursor = cursor;
		later();
	}
});
document.documentElement.addEventListener('pointerleave', () => { byId('tip').hidden = true; S.cursor = null; later(
	); });
addEventListener('click', (e) => {
	const { canvas, x, y } = under(e);
	const to = canvas?.under.go?.(x, y);
	if (to) go(views.link(to));
});

// ---- Start.

byId('live').addEventListener('click', pause);
byId('theme').addEventListener('click', otherTheme);
byId('helper').addEventListener('click', showHelp);
document.querySelector('.skip').addEventListener('click', (e) => { e.preventDefault(); byId('main').focus(); });
addEventListener('hashchange', route);
// A hidden tab takes nothing after half a minute.
let away = 0;
document.addEventListener('visibilitychange', () => {
	clearTimeout(away);
	if (document.hidden) away = setTimeout(() => { clearTimeout(stream.timer); stream.source?.close(
		); stream.path = ''; }, 30000);
	else if (!stream.path) open();
});
setTheme(kept.get('theme'));
route();
