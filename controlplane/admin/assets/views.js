// The views: each is a function of the store S and the route R that returns elements.
import {
	act, ago, clock, dash, h, known, labels, lasts, minute, num, pct, place, plural, R, rate, S, seconds, secs, sign, sum,
} from './base.js';
import * as charts from './charts.js';

const ranges = { '5m': 300, '15m': 900, '1h': 3600 };
export const rangeNames = Object.keys(ranges);
export const rangeSeconds = () => ranges[R.range];

// Routes stand behind the #. What is not the default of a query is part of it, so that a link shows the same.
export function link(path, query = {}, r = R) {
	const q = new URLSearchParams();
	if (r.range !== '15m') q.set('range', r.range);
	for (const [k, v] of Object.entries(query)) if (v) q.set(k, v);
	const words = q.toString();
	return '#' + path + (words ? '?' + words : '');
}
export const clusterPath = (name) => '/c/' + encodeURIComponent(name);
export const endpointPath = (name, address) => clusterPath(name) + '/e/' + encodeURIComponent(address).replaceAll(
	'%3A', ':');

const card = (title, note, end, ...kids) => h('section.card', { key: title },
	h('header', h('h2', title), note && h('small', note), end && h('div.end', end)), ...kids);
// picture is a canvas; name is for those who cannot see it. rev changes with what is drawn.
const picture = (height, name, rev, draw, key) => h('canvas', {
	key, role: 'img', 'aria-label': name, style: { height: height + 'px' }, rev: String(rev), draw,
});
const b = (...kids) => h('b', ...kids);
const to = (route, ...kids) => h('a', { href: link(route) }, ...kids);
const button = (f, ...kids) => h('button.button', { onclick: f }, ...kids);
// sheet is a table that scrolls sideways; the heading of a column may end with | and its classes.
const sheet = (name, heads, rows, kind = 'plain') => h('div.sideways', { tabindex: 0, role: 'region',
	'aria-label': name }, h('table.' + kind, h('thead', h('tr', heads.map((t) => h('th', { scope: 'col',
	class: t.split('|')[1] }, t.split('|')[0])))), h('tbody', rows)));
// meter is a bar for a part, of all its width, with a mark; both may be unknown.
const meter = (kind, part, mark, title) => h('span.meter' + kind, { title: title || null }, h('i',
	{ style: { width: Math.min(100, 100 * (part || 0)) + '%' } }),
known(mark) && h('b', { style: { left: Math.min(100, 100 * mark) + '%' } }));
const filterField = (what, label) => h('input.field', { id: 'filter', type: 'search', placeholder: 'Filter: ' + what,
	'aria-label': 'Filter the ' + label, value: R.q, oninput: (e) => act.query({ q: e.target.value }, true) });
const chip = (key, on, change, ...kids) => h('button.chip', { key, 'aria-pressed': String(on),
	onclick: () => act.query(change) }, ...kids);
// path leads to where a view is; of an endpoint to its cluster.
const path = (c) => h('nav.path', { 'aria-label': 'Path' }, to('/', 'Fleet'), ' /',
	c && [' ', to(clusterPath(c.name), c.name), ' /']);
const rangeWords = () => R.range.replace('m', ' min').replace('h', ' h');
// leadOf is the sentence of a view. A stale page claims nothing.
const leadOf = (kind, words, more) => h('p.lead', S.is === 'stale'
	? [sign('none'), 'As of ' + clock(S.now) + ' UTC. What holds now is not known.'] : [kind && sign(kind), words, more]);

// ---- Words for states.

const states = {
	outlier: ['error', 'stalled or failing'], probed: ['warning', 'tried again'], blind: ['error', 'blind'],
	asleep: ['warning', 'asleep'],
	doubted: ['warning', 'report doubted'],
	overloaded: ['warning', 'overloaded'], unused: ['warning', 'unused'], unread: ['warning', 'metrics unread'],
	late: ['warning', 'late'], drained: ['none', 'drained'],
	warming: ['new', 'warming up'], above_level: ['good', 'ok'],
	ok: ['good', 'ok'],
};
export const stateOrder = Object.keys(states);
export const kindOf = (state) => states[state]?.[0] || 'none';
export const stateWord = (state) => states[state]?.[1] || state || 'not known';

// What load is counted in: seconds of work where engines count tokens, else requests for each slot.
export const byWork = (c) => (c.unit ?? c.decision?.unit) === 'work';
const steps = (c) => charts.stepsOf(byWork(c));
export const loadName = (c) => (byWork(c) ? 'Work waiting' : 'Load per slot');
export const loadWords = (c, v) => (byWork(c) ? secs(v) : num(v, 2));
const loadTip = (c) => (v) => loadWords(c, v) + (byWork(c) ? ' of work waiting' : ' requests for each slot');
const shareDigits = (n) => (n > 40 ? 2 : 1);

// ---- The strip: what Steelyard itself does.

// followers are the Envoys that follow, of all.
const followers = () => {
	const n = S.fleet.envoys; // of all replicas
	return [n.in_sync, n.connected + n.lost + n.unheard];
};
export function chain() {
	if (!S.fleet) return [];
	const { clusters, envoys, pushes_per_second: pushes } = S.fleet;
	const total = sum(clusters.map((c) => c.endpoint_counts.total));
	const deaf = sum(clusters.map((c) => c.endpoint_counts.stale));
	const ages = clusters.map((c) => c.decision_age_seconds).filter(known);
	const age = Math.max(...ages);
	const [follow, asked] = followers();
	const stages = [
		[deaf === 0 ? 'good' : 2 * deaf >= total ? 'error' : 'warning', 'receives reports from ',
			b(num(total - deaf) + ' of ' + num(total)), ' servers'],
		[!ages.length ? 'none' : age < 5 ? 'good' : 'error', 'decided ', b(ages.length ? ago(age) : 'nothing yet')],
		[known(pushes) ? 'good' : 'none', 'sends ', b(known(pushes) ? rate(pushes) + ' updates/s' : 'not known yet')],
		[envoys.behind + envoys.refusing + envoys.lost ? 'error' : envoys.unheard ? 'warning'
			: asked && follow === asked ? 'good' : 'none',
			'followed by ', b(num(follow) + ' of ' + num(asked)),
			' Envoys'],
	];
	const own = S.fleet.incidents.some((i) => i.steelyard === 'yes');
	const worst = ['error', 'warning'].find((k) => stages.some(([kind]) => kind === k));
	const verdict = own ? ['is-error', 'is the cause of an incident'] : !worst ? ['is-good', 'does what it should']
		: ['is-' + worst, 'part of it needs a look'];
	return [
		h('h2', 'Steelyard itself'),
		h('ol', stages.map(([kind, ...words]) => h('li', sign(kind), h('span', ...words)))),
		h('p', { class: verdict[0] }, verdict[1]),
	];
}

// ---- Incidents.

const causes = { no: 'No.', in_part: 'In part.', yes: 'Yes.', unknown: 'Not known.' };

// concerns is whether an incident is about what the view shows.
function concerns(i) {
	const { kind, cluster, name } = i.subject;
	if (R.view === 'endpoint') return cluster === R.cluster && (kind !== 'endpoint' || name === R.endpoint);
	if (R.view === 'cluster') return cluster === R.cluster;
	return R.view === 'envoys' ? kind === 'envoy' : true;
}
const shownIncidents = 5;

export function trouble() {
	const all = S.fleet ? S.fleet.incidents : [];
	const order = (i) => (concerns(i) ? 0 : 2) + (i.severity === 'error' ? 0 : 1);
	const list = [...all].sort((x, y) => order(x) - order(y));
	const first = list.find((i) => concerns(i) && R.view !== 'events');
	const shown = S.allIncidents ? list : list.slice(0, shownIncidents);
	const more = list.length - shown.length;
	return [
		shown.map((i) => incident(i, S.opened.get(i.id) ?? i === first)),
		more > 0 && h('p', { key: 'more' }, button(() => act.all('Incidents'), 'and ' + num(more) + ' more')),
	];
}
function incident(i, open) {
	const { kind, cluster, name } = i.subject;
	const where = kind === 'cluster' ? '' : cluster;
	const toggle = (e) => {
		e.preventDefault();
		act.open(i.id, !open);
	};
	return h('details', { key: i.id, class: 'incident ' + i.severity, open },
		h('summary', { onclick: toggle },
			sign(i.severity),
			h('span', titled(i), where && h('small', '  ' + where)),
			h('span.since', known(seconds(i.since)) ? 'for ' + lasts(S.now - seconds(i.since)) : '')),
		open && h('dl',
			h('div', h('dt', 'Why'), h('dd', i.why)),
			h('div', h('dt', 'Is Steelyard the cause?'), h('dd', b(causes[i.steelyard] || causes.unknown), ' ' + i.because)),
			h('div', h('dt', 'What to do'), h('dd', i.next, i.command && h('div.command', h('code', i.command),
				button((e) => act.copy(i.command, e.currentTarget), 'Copy'))))),
		open && h('div.links',
			kind === 'endpoint' && to(endpointPath(cluster, name), 'Why this weight'),
			kind === 'envoy' && to('/envoys', 'Its state'),
			h('a', { href: cluster ? link(clusterPath(cluster)) : link('/events') }, 'Show on the timeline')));
}
// titled makes the subject in the title bold.
function titled(i) {
	const who = i.subject.name || i.subject.cluster;
	const at = who ? i.title.indexOf(who) : -1;
	return at < 0 ? i.title : [i.title.slice(0, at), b(who), i.title.slice(at + who.length)];
}

// ---- Time.

// spanOf is the time that a history covers: it ends with the latest value.
const spanOf = (history) => history?.span || { from: 0, to: 1, step: 1 };
function since() {
	const started = S.now - seconds(S.fleet.started_at);
	return started < rangeSeconds() ? 'Steelyard started ' + lasts(started) + ' ago; history from then on' : '';
}

// stack is a list of charts under one axis, with the lane of events. tracks: { title, values: [{ name, colour, dashed,
// now, at }], lines, band, unit, most, format, name }.
function stack(history, tracks, events) {
	const span = spanOf(history);
	const rev = history ? history.rev + '/' + S.cursor + '/' + S.theme : 'none';
	const eventRev = rev + '/' + events.length + '/' + (events.length ? events[0].id : '');
	const index = known(S.cursor) ? Math.min(history.n - 1,
		Math.max(0, Math.ceil((S.cursor - span.from) / span.step) - 1)) : -1;
	return h('div.stack', { key: 'stack', 'data-stack': true },
		h('div.track', h('div', h('h3', 'Events')),
			picture(30, plural(events.length, 'event') + ' in this time; the view Events lists them', eventRev,
				charts.lane(events, span, S.cursor))),
		tracks.map((t) => h('div.track', { key: t.title },
			h(t.values.length > 1 || t.values[0].name ? 'div' : 'div.one', h('h3', t.title), h('ul.values',
				t.values.map((v) => h('li',
				v.colour && h('i', { class: (v.box ? '' : 'line ') + v.colour + (v.dashed ? ' dashed' : '') }), v.name,
				!v.box && b(index >= 0 && v.at ? t.format(v.at[index]) : v.now)))),
			),
			picture(t.height || 64, t.title + ' over ' + R.range + ': ' + t.values.filter((v) => !v.box).map((v) => (v.name
				? v.name + ' ' : '') + v.now).join(', '), eventRev,
				charts.chart(t, span, events, S.cursor)))),
		h('div.track.axis', h('div', known(S.cursor) ? 'values at ' + clock(S.cursor) : 'UTC, values are now'),
			picture(18, 'time axis', rev, charts.timeAxis(span, S.cursor))));
}

// ---- Events.

// Each kind of event: sign, group in the filter, words on the lane.
const eventKinds = {
	started: ['none', 'config', 'started'], config: ['none', 'config', 'config'],
	config_refused: ['error', 'config', 'config refused'], override: ['none', 'config', 'override'],
	pools_joined: ['new', 'config', 'pool'], pools_left: ['gone', 'config', 'pool gone'],
	endpoints_joined: ['new', 'endpoints', 'joined'], endpoints_left: ['gone', 'endpoints', 'left'],
	flagged: ['warning', 'flags', 'flagged'], retried: ['warning', 'flags', 'failed a try'],
	unflagged: ['good', 'flags', 'flag off'], source_lost: ['warning', 'sources', 'lost'],
	source_back: ['good', 'sources', 'back'],
	nack: ['error', 'Envoys', 'refuses'], envoys_joined: ['new', 'Envoys', 'joined'],
	envoys_left: ['gone', 'Envoys', 'left'], drops_began: ['error', 'drops', 'drops'],
	drops_ended: ['good', 'drops', 'drops ended'],
};
export const eventGroups = [...new Set(Object.values(eventKinds).map(([, group]) => group))];
// readEvent completes an event of the API with what the page shows of it.
export function readEvent(e) {
	const one = e.count === 1 && e.subjects.length ? place(e.subjects[0]) : e.count > 1 ? num(e.count) : '';
	const [kind, group, brief] = eventKinds[e.kind] || ['none', '', e.kind];
	return {
		...e, t: seconds(e.at), kind, group, type: e.kind, title: e.text, text: e.cluster, go: eventRoute(e),
		brief: ((one.length > 22 ? one.slice(0, 21) + '…' : one) + ' ' + brief).trim(),
	};
}
// addressIn is the address of the endpoint that an event names, with its Pod or without.
const addressIn = (subject) => /(?:^|\()(\S+:\d+)\)?$/.exec(subject)?.[1];
function eventRoute(e) {
	if (e.kind.startsWith('envoys') || e.kind === 'nack') return '/envoys';
	const address = e.subjects.map(addressIn).find(Boolean);
	if (e.cluster && address && e.count === 1) return endpointPath(e.cluster, address);
	return e.cluster ? clusterPath(e.cluster) : '/events';
}
const eventRow = (e) => h('li.event', { key: e.id },
	h('time', { datetime: e.at, title: clock(e.t) + ' UTC' }, ago(Math.max(1, S.now - e.t))), sign(e.kind),
	h('div', h('p', to(e.go, e.title)),
		h('small', [e.cluster, ...e.subjects].filter((w) => w && !e.title.includes(w)).join(', '))),
	h('small', clock(e.t)));
const eventList = (list, most) => (list.length
	? h('ul', list.slice(0, most).map((e) => eventRow(e)))
	: h('p.inner.soft', nothing()));
const nothing = () => (S.eventsAt ? 'Nothing happened since ' + minute(Math.max(S.now - 3600,
	seconds(S.fleet.started_at) || 0)) + ' UTC.' : 'Asking for the events.');

// ---- Fleet.

function stateCounts(c) {
	const n = c.endpoint_counts;
	const all = [
		['warning', n.overloaded, 'flagged'], ['warning', n.failing, 'metrics unread'],
		['new', n.new, 'warming up'],
	].filter(([, count, word]) => count && word);
	if (c.state === 'ok' && !all.length) return [['good', n.total ? 'all ' + num(n.total) + ' well' : 'no endpoints']];
	return all.map(([kind, count, word]) => [kind, num(count) + ' ' + word]);
}
const figure = (name, value, unit, note, values, key, rev) => h('div.figure', h('small', name),
	h('b', value, unit && h('small', unit)), h('small', note), values && picture(36, name + ' over time, now ' + value +
		(unit || ''), rev,
		charts.spark(values), key));

function poolRow(c) {
	const history = S.histories.get(c.name);
	const rev = history ? history.rev + S.theme : 'none';
	const rows = history ? history.rows.map((r) => ({ name: r.address, values: r.load, go: endpointPath(c.name,
		r.address) })) : [];
	const head = S.heads.get(c.name) || {};
	const worst = S.fleet.incidents.filter((i) => i.subject.cluster === c.name);
	const counts = stateCounts(c);
	const first = known(c.first_token_mean_seconds);
	return h('section.card.pool', { key: c.name, 'data-cluster': c.name },
		h('div.who', h('h2', to(clusterPath(c.name), c.name)),
			h('p.soft', [head.engine, plural(c.endpoint_counts.total, 'endpoint')].filter(Boolean).join(' · ')),
			h('ul.states',
				!c.ready && h('li.is-warning', sign('warning'), 'not ready'),
				worst.length > 0 && h('li', { class: 'is-' + c.state }, sign(c.state), plural(worst.length, 'incident')),
				counts.map(([kind, words]) => h('li', { class: kind === 'good' ? 'soft' : 'is-' + kind }, sign(kind), words)))),
		h('div.map', picture(Math.max(36, Math.min(88, 10 * rows.length)), 'Load of each endpoint of ' + c.name +
			' over ' + R.range, rev,
			rows.length ? charts.heatmap(rows, steps(c), history.span, loadTip(c)) : () => {}),
		h('div.ends', h('span', rangeWords() + ' ago'),
			h('span.less', rows.length ? 'a line for each endpoint' : 'no history yet'), h('span', 'now'))),
		figure('Requests', rate(c.arrival_rate), '/s', known(c.in_flight) ? num(c.in_flight) + ' in flight' : '',
			history?.pool.rate, 'rate', rev),
		first ? figure('First token, mean', secs(c.first_token_mean_seconds), '', known(head.first_token_p99_seconds)
			? 'p99 ≈ ' + secs(head.first_token_p99_seconds) : '', history?.pool.first, 'first', rev)
			: figure('Whole answer, p99', secs(c.answer_p99_seconds), '', 'the last minute', history?.pool.answer, 'answer',
				rev),
		figure(loadName(c), loadWords(c, c.median_shown), '', 'median; fullest ' + loadWords(c, c.fullest_shown),
			history?.pool.median, 'load', rev),
		figure('Capacity in use', pct(c.capacity_used, 0), '', known(c.endpoints_to_spare)
			? 'can lose ' + num(c.endpoints_to_spare) + ' of ' + num(c.endpoint_counts.total) : 'not known yet',
			history?.pool.used, 'used', rev));
}

function fleetLead() {
	const { clusters, envoys, incidents } = S.fleet;
	const errors = incidents.filter((i) => i.severity === 'error').length;
	if (errors) return ['error', b(plural(errors, 'incident')), errors === 1 ? ' needs you; it is explained above.'
		: ' need you; they are explained above.'];
	if (incidents.length) return ['warning', 'Nothing is broken; ', b(plural(incidents.length, 'warning')),
		incidents.length === 1 ? ' stands above.' : ' stand above.'];
	const [follow, asked] = followers();
	if (!asked) return ['none', 'No Envoy is connected, so nothing is sent.'];
	return ['good', 'Nothing needs you: ' + plural(clusters.length, 'cluster') +
		(follow < asked ? '.' : ', and every Envoy follows.')];
}

const byState = ['error', 'warning', 'ok'];
export function fleetView() {
	const { clusters, envoys } = S.fleet;
	if (!clusters.length) {
		const { enabled, error } = S.process?.pools || {};
		return [h('h1', 'Fleet'), enabled ? empty('No InferencePool is known', error)
			: empty('No cluster is configured', 'Write one into the configuration under clusters, and reload it.')];
	}
	const [kind, ...lead] = fleetLead();
	const rates = clusters.map((c) => c.arrival_rate).filter(known);
	return [
		h('div.head', h('h1', 'Fleet'),
			h('p', [plural(clusters.length, 'cluster'), plural(sum(clusters.map((c) => c.endpoint_counts.total)), 'endpoint'),
				plural(envoys.connected, 'Envoy'),
				rate(rates.length ? sum(rates) : null) + ' requests/s'].join(' · ')),
			h('div.end.legend', h('span', 'load: little', scale(), 'overloaded'))),
		leadOf(kind, lead, h('small', '  ' + since())),
		[...clusters].sort((x, y) => byState.indexOf(x.state) - byState.indexOf(y.state)).map(poolRow),
		operatorsCard(),
		h('div.half',
			card('Latest events', null, to('/events', 'All events'), eventList(S.events, 6)),
			card('Envoys', null, to('/envoys', 'Which sends where'), h('div.inner', envoyMini()))),
	];
}
const scale = (labels, n = 8) => h('span.scale', { 'aria-hidden': 'true', style: { '--n': n } },
	Array.from({ length: n }, (_, i) => h('i', { style: { background: 'var(--l' + i + ')' } })),
	labels && labels.map((l) => h('span', l)));

function envoyMini() {
	const list = S.envoys.slice(0, 12);
	if (!list.length) return h('p.soft', S.clientsAt ? 'No Envoy is connected. Attach one with steelyard bootstrap.'
		: 'Asking for the list.');
	return [h('ul.mini', list.map((e) => h('li', { key: e.key }, sign(e.kind), h('a', { href: link('/envoys') },
		e.name), h('small', e.word),
		h('span.end.nowrap', known(e.rate) ? rate(e.rate) + ' /s' : '')))),
	S.envoyTotal > 12 && h('p.note', 'and ' + num(S.envoyTotal - 12) + ' more')];
}
const empty = (title, ...words) => h('div.card.empty', h('h2', title), words.map((w) => (typeof w === 'string'
	? h('p', w) : w)));

// ---- Cluster.

function clusterLead(c, rows) {
	if (!c.ready) return ['warning', 'Not ready: ' + (c.not_ready_reason || 'no reason given') +
		'. Nothing is sent yet.'];
	const bad = rows.filter((r) => kindOf(r.state) === 'error').length;
	const look = rows.filter((r) => kindOf(r.state) === 'warning').length;
	const words = [];
	const say = (n, word) => words.push(b(num(n) + ' of ' + num(rows.length)), ' endpoints ' + word + '. ');
	if (bad) say(bad, bad === 1 ? 'is in trouble' : 'are in trouble');
	else if (look) say(look, look === 1 ? 'needs a look' : 'need a look');
	const [median, fullest] = [S.medianShown, S.fullestShown];
	if (known(median)) {
		words.push(byWork(c) ? 'The median endpoint has ' : 'The median endpoint is at ', b(loadWords(c, median)),
			byWork(c) ? ' of work waiting, the fullest ' : ' requests for each slot, the fullest at ',
			b(loadWords(c, fullest)), '. ');
	} else words.push('No load is known yet. ');
	const over = c.use.capacity_used > 1;
	if (known(c.use.capacity_used)) words.push('The pool uses ', b(pct(c.use.capacity_used, 0)), ' of what it can do' +
		(c.use.estimate ? ', by estimate' : '') + (over ? '; while it does, queues grow. ' : '. '));
	if (c.decision.drop_fraction > 0) words.push(b('Envoys refuse ' + pct(c.decision.drop_fraction)),
		' of the requests, because the whole pool is saturated.');
	if (c.shadow_envoys > 0) words.push('Requests of ', b(plural(c.shadow_envoys, 'Envoy')),
		' are only counted, and follow no weights. ');
	const { state } = S.fleet.clusters.find((x) => x.name === c.name); // of its incidents
	return [bad ? 'error' : state !== 'ok' ? state : look || over ? 'warning' : 'good', ...words];
}

// vesselsOf makes the vessels of the rows: see package weighting.
export function vesselsOf(c, rows, chosen) {
	const level = c.decision.water_level;
	const work = byWork(c);
	const k = perLevel(c);
	const label = labels(rows.map((r) => r.address));
	return rows.map((r) => {
		const s = (work || !known(r.slots) ? 1 : r.slots) * (known(r.ramp) ? r.ramp : 1);
		const f = Math.max(0, s - 1);
		const cap = known(r.capacity) ? r.capacity : s;
		const load = work ? r.workRequests : r.load;
		const own = !known(load) ? null : load <= f ? load / s : f / s + (load - f) / Math.max(cap, 1e-9);
		const holds = Math.min(s * level, f) + cap * Math.max(0, level - f / s);
		const part = known(load) && known(c.decision.arrivals) ? Math.max(0, holds - load) / c.decision.arrivals : 0;
		const taken = r.inFlight >= placesOf(c, r);
		const fills = part > 0 && !taken && !r.override && !['outlier', 'asleep', 'unused'].includes(r.state);
		return {
			zone: r.zone, label: label(r.address).split(/[.:]/).pop(), chosen: r.address === chosen, state: kindOf(r.state),
			wide: s, width: cap, brim: (k * f) / s, level: known(own) ? k * own : null, to: fills ? k * level : known(own)
				? k * own : null, part: fills ? part : 0, words: levelWords(c)(k * (own || 0)),
			tip: [r.pod || r.address, stateWord(r.state), known(own) ? 'at ' + levelWords(c)(k * own) + (fills
				? ', gets ' + pct(part, 0) + ' of the next requests' : r.override ? ', ' + overrideWords(r.override) : taken
				? ', all places taken' : kindOf(r.state) === 'good' ? ', above the level: gets the floor' : '')
				: 'its load is not known'],
			go: endpointPath(c.name, r.address),
		};
	});
}
// placesOf is how many requests a queue has at an endpoint at a time, if known.
const placesOf = (c, r) => (!c.queue ? Infinity : known(c.queue.max_in_flight) ? c.queue.max_in_flight
	: r.slotsKnown ? r.slots : Infinity);
// Where the unit is work, levels are drawn in seconds, if these are known.
const perLevel = (c) => (byWork(c) && known(S.secondsPerLevel) ? S.secondsPerLevel : 1);
const levelWords = (c) => (v) => (!byWork(c) ? num(v, v < 10 ? 2 : 0) : known(S.secondsPerLevel) ? secs(v)
	: num(v, 1) + ' req.');

function fillCard(c, rows, chosen, height) {
	const list = S.memo('vessels ' + chosen, () => vesselsOf(c, rows, chosen));
	const level = known(c.decision.water_level) ? c.decision.water_level * perLevel(c) : null;
	const name = known(level) ? 'Level ' + levelWords(c)(level) + '; ' + plural(list.filter((v) => v.part > 0).length,
		'endpoint') + ' below it get the next requests' : 'No level is known';
	const rev = S.rev + S.theme + R.cluster + chosen;
	const draw = !known(level) ? () => {} : rows.length <= 40
		? charts.vessels(list, level, { format: levelWords(c), percent: (v) => pct(v, 0), chosen })
		: charts.skyline(list, level, { format: levelWords(c) });
	return [picture(height, name, rev, draw, 'fill'),
		h('p.legend', h('span', h('i.stock'), byWork(c) ? 'work waiting' : 'requests there'), h('span', h('i.water'),
			'requests to come'),
			h('span', h('i.line.dashed.water'), 'level ' + (known(level) ? levelWords(c)(level) : dash)), rows.length <= 40 &&
				h('span', 'wide = fast'))];
}
// expected is what the decision is for: those that its horizon brings, the next request where that is less than one, or
// those that come together.
function expected(c) {
	const { arrivals, arrival_rate: perSecond, arrival_rate_source: source, horizon_seconds: horizon } = c.decision;
	if (!known(arrivals)) return 'nothing is expected yet';
	const n = num(arrivals, arrivals < 20 ? 1 : 0);
	if (source === 'unknown') return n + ', one for each endpoint';
	if (arrivals <= perSecond * horizon * 1.001) return n + ' expected within ' + secs(horizon);
	return arrivals > 1 ? n + ' that come together' : 'the next one';
}

// track is a chart of one line; now is its latest value, as words.
const track = (title, format, values, now, more) => ({
	title, format, lines: [{ values: values || [], colour: 'water' }], values: [{ name: '', now, at: values }], ...more,
});
const perSecond = (v) => rate(v) + ' /s';
function clusterTracks(c, history) {
	const pool = history ? history.pool : {};
	const first = known(c.first_token_mean_seconds) || (pool.first || []).some(known);
	const tracks = [track('Requests', perSecond, pool.rate, perSecond(c.decision.arrival_rate)), first
		? track('First token', secs, pool.first, '', { unit: 's', values: [
			{ name: 'mean', colour: 'water', now: secs(c.first_token_mean_seconds), at: pool.first },
			{ name: 'p99 ≈', now: secs(c.first_token_p99_seconds) }] })
		: track('Whole answer', secs, pool.answer, '', { unit: 's', values: [
			{ name: 'p99', colour: 'water', now: secs(c.answer_p99_seconds), at: pool.answer }] })];
	tracks.push({
		title: loadName(c), unit: byWork(c) ? 's' : '', format: (v) => loadWords(c, v), height: 84,
		lines: [{ values: pool.most || [], colour: 'ink2', thin: true }, { values: pool.median || [], colour: 'water' }],
		band: pool.low && [pool.low, pool.high],
		values: [{ name: 'fullest', colour: 'ink', now: loadWords(c, S.fullestShown), at: pool.most }, { name: 'median',
			colour: 'water', now: loadWords(c, S.medianShown), at: pool.median },
			{ name: '8 of 10 endpoints', colour: 'shallow', box: true }],
	});
	if ((pool.flight || []).some(known)) {
		tracks.push(track('In flight', (v) => num(v), pool.flight, num(S.inFlight), { height: 54 }));
	}
	return tracks;
}

export function clusterView() {
	const instead = absent();
	if (instead) return instead;
	const c = S.cluster;
	const rows = S.rows;
	const history = S.histories.get(c.name);
	const zones = new Set(rows.map((r) => r.zone).filter(Boolean));
	const [kind, ...lead] = clusterLead(c, rows);
	const head = [
		h('div.head', path(), h('h1', c.name),
			h('p', [c.engine, plural(rows.length, 'endpoint') + (zones.size > 1 ? ' in ' + zones.size + ' zones' : ''),
				'decided ' + ago(c.decision.age_seconds)].join(' · ')),
			h('div.end', h('a', { href: link('/envoys', { pool: c.name }) }, 'Its Envoys'))),
		leadOf(kind, lead, h('small', '  ' + since())),
	];
	if (!rows.length) return [head, empty('No endpoints',
		'Discovery has found none: see its source below.'),
		sourcesCard(c)];
	const events = S.events.filter((e) => !e.cluster || e.cluster === c.name);
	return [
		head,
		h('div.wide',
			h('section.card', h('h2.unseen', 'Over time'), stack(history, clusterTracks(c, history), events)),
			card('Who gets the next requests', c.queue && rows.every((r) => r.inFlight >= placesOf(c, r))
				? 'all places are taken: requests wait' : expected(c), null, h('div.inner', fillCard(c, rows, '', 290)))),
		rows.length > 40 && squaresCard(c, rows),
		c.queue && queueCard(c.queue),
		c.routes && card('Where prompts are cached', routesNote(c.routes), null),
		operatorsCard(c.name), endpointTable(c, rows),
		h('div.half', lostCard(c), sourcesCard(c)),
	];
}

function squaresCard(c, rows) {
	const zones = [...new Set(rows.map((r) => r.zone))].sort();
	const frames = { error: 'error', warning: 'warning', new: 'new' };
	return card('Every endpoint now', 'a square each; framed ones need a look', scaleOf(c),
		h('div.inner.squares', zones.map((z) => {
			const mine = rows.filter((r) => r.zone === z);
			const size = mine.length > 500 ? 11 : 14;
			const items = S.memo('squares ' + z, () => mine.map((r) => ({
				value: r.shown, frame: frames[kindOf(r.state)], go: endpointPath(c.name, r.address),
				tip: [r.pod || r.address, stateWord(r.state), loadTip(c)(r.shown)],
			})));
			const per = Math.max(1, Math.floor((S.squareWidth(zones.length) || 300) / size));
			return h('div', { key: 'zone ' + z }, h('small', (z ? 'zone ' + z : 'no zone') + ' · ' + num(mine.length)),
				picture(Math.ceil(mine.length / per) * size, mine.length + ' endpoints of zone ' + (z || 'none') +
					'; the table below has their numbers', S.rev + S.theme,
					charts.squares(items, steps(c), size)));
		})));
}
const scaleOf = (c) => h('span.legend', h('span', byWork(c) ? 'work waiting, s' : 'load per slot',
	scale(['0', ...steps(c)].map((v) => String(v).replace(/^0\./, '.')))));

function lostCard(c) {
	const { use } = c;
	const rowsOf = [['now', use.capacity_used], ...(use.if_lost || []).map((l) => ['without ' + (l.endpoints === 1
		? 'the largest' : l.endpoints), l.capacity_used])];
	const body = !known(use.capacity_used) ? h('p.inner.soft',
		'Not known yet: no endpoint has been busy for long enough.')
		: h('div.inner', lostBars(rowsOf),
			h('p.note',
			'The work that arrives now, of what the rest can do. The mark is 100 %: beyond it, queues grow without end.'
			+ (use.estimate ? ' An estimate: some endpoints were never busy, and count as fast as the others.'
				: '')));
	return card('If endpoints were lost', 'capacity in use', null, body);
}
const lostBars = (list) => h('div.bars', list.flatMap(([name, v]) => [
	h('span.label', name), meter('.slim' + (v > 1 ? '.bad' : ''), 0.75 * v, 0.75),
	h('b', { class: v > 1 ? 'is-error' : '' }, pct(v, 0))]));

const sourceNames = {
	scrape: 'Server metrics', redis: 'Counts in Redis', discovery: 'Discovery', access_log: "Envoys' request log",
		load_reports: "Envoys' load reports",
};
const sourceKinds = { ok: 'good', partial: 'warning', partly: 'warning', idle: 'none', off: 'none', stale: 'warning',
	down: 'error' };
// sourceKind is the kind of the incident about a source, if there is one: red where the source fails for most of
// a pool. An incident stays for some seconds after its cause.
const sourceKind = (c, s) => (s.state !== 'ok' && S.fleet.incidents.find((i) => i.id === 'source/' + c.name + '/' +
	s.name)?.severity) || sourceKinds[s.state] || '';
function sourceWords(s) {
	const e = s.envoys;
	if (known(e.expected)) {
		const words = num(e.reporting || 0) + ' of ' + plural(e.expected, 'Envoy');
		return words + (e.idle ? ', ' + num(e.idle) + ' without requests' : '') + (e.missing.length
			? '; not from ' + e.missing.join(', ') : '');
	}
	return s.last_error || (s.state === 'partly' ? 'left out: ' + omitted(s.omitted) : s.state === 'ok' ? 'works' : '');
}
const omitted = (o) => o.first.map((x) => (x.address ? x.address + ' (' + x.object + ')' : x.object) + ': ' + x.reason)
	.concat(o.count > o.first.length ? ['and ' + num(o.count - o.first.length) + ' more'] : []).join('; ');
function sourcesCard(c) {
	return card('What Steelyard receives', 'of ' + c.name, null,
		sheet('Sources', ['Source', 'State|less', 'What it reports', 'Latest|num'], c.sources.map((s) => h('tr',
			{ key: s.name }, h('td.nowrap', sign(sourceKind(c, s)), ' ' + (sourceNames[s.name] || s.name)),
			h('td.less', { class: 'is-' + sourceKind(c, s) }, s.state), h('td.break', sourceWords(s)),
			h('td.num', s.last_success ? ago(S.now - seconds(s.last_success)) : 'never')))),
		byWork(c) && h('p.note.inner', requestWords(c.decision.work)));
}
const old = (age) => (known(age) ? ' (' + secs(age) + ' old)' : '');
// requestWords is what was learned of requests and engines, with sources and ages.
function requestWords(w) {
	return 'From the counters of ' + plural(w.engines, 'engine') + old(w.counted_age_seconds) + ': a request has ' +
		num(w.prompt_tokens) + ' prompt tokens to compute and ' + num(w.output_tokens) + ' of output. ' +
		(known(w.cached_share) ? 'Prefix caches answer ' + pct(w.cached_share, 0) + ' of the prompts. ' : '') +
		'With the sizes of requests: ' +
		num(w.tokens_per_byte, 2) + ' tokens per byte' + old(w.tokens_per_byte_age_seconds) + ', so ' +
		(w.by_size ? 'a prompt is guessed by its size. ' : 'each prompt counts as a mean one. ') +
		'A typical engine computes ' + num(w.prefill_rate) + ' prompt tokens/s' + old(w.prefill_rate_age_seconds) + '.';
}
const routesNote = (r) => num(r.here + r.elsewhere) + ' learned routes, ' + num(r.elsewhere) + ' of them learned at' +
	' other replicas; confirmed within 1 minute ' + num(r.last_minute) + ', 10 minutes ' + num(r.last_ten_minutes) +
	', 1 hour ' + num(r.last_hour) + '.';
function queueCard(q) {
	const most = q.max_in_flight === null ? 'its slots' : num(q.max_in_flight);
	const owner = { grants: q.owner.name ? 'this replica' : '', follows: q.owner.name,
		stopped: 'none: this replica cannot renew its lease', unknown: 'none that is known' }[q.owner.state];
	const by = owner && ' Granted by ' + owner + (known(q.owner.epoch) ? ', epoch ' + num(q.owner.epoch) : '') + '.';
	if (!q.classes.length) return card('Queue', plural(q.envoys, 'Envoy') + ' of this replica.' + by, null);
	const note = num(q.in_flight) + ' in flight by it, at most ' + most + ' at each endpoint, of '
		+ plural(q.envoys, 'Envoy') + (by ? '.' + by : '');
	const weights = sum(q.classes.filter((c) => !c.strict).map((c) => c.weight));
	return card('Queue', note, null, sheet('Queue', ['Class', 'Share|num', 'Waiting|num', 'Tenants|num less',
		'Longest wait|num', 'Sent|num', 'Refused|num', 'Gave up|num less', 'By the weights|num less'],
		q.classes.map((c) => h('tr', { key: c.name }, h('td.nowrap', c.name),
			h('td.num', c.strict ? 'first' : pct(c.weight / weights)),
			h('td.num', num(c.waiting)), h('td.num.less', num(c.tenants)),
			h('td.num', c.oldest_at ? secs(Math.max(0, S.now - seconds(c.oldest_at))) : dash),
			h('td.num', num(c.granted)), h('td.num', num(c.refused_full + c.refused_timeout)),
			h('td.num.less', num(c.left)), h('td.num.less', num(c.released))))));
}
// absent stands for a cluster that is not there, or not yet; null where it is.
function absent() {
	const c = S.fleet.clusters.find((x) => x.name === R.cluster);
	const there = c && S.cluster?.name === c.name && (S.rows.length || !c.endpoint_counts.total);
	if (c) return there ? null : loadingBlocks();
	const title = 'There is no cluster ' + R.cluster;
	return [h('div.head', path(), h('h1', title)), empty(title, 'The configuration that runs has none of this name.',
		h('p', to('/', 'To the fleet')))];
}
export const loadingBlocks = () => [h('div.block.h1'), h('div.block.h2'), h('div.block.h3')];

// ---- The table of endpoints. Only the rows on the screen are elements.

const columns = [
	{ id: 'name', name: 'Endpoint', width: '20%', value: (r) => r.order },
	{ id: 'state', name: 'State', width: '12%', value: (r) => -stateOrder.indexOf(r.state) * 1e6 + (r.shown || 0) },
	{ id: 'served', name: 'Served share, 1 min', note: 'mark: its part of the capacity', width: '17%',
		value: (r) => r.served1m },
	{ id: 'load', name: 'Load', width: '19%' },
	{ id: 'work', name: '', width: '9%', value: (r) => r.shown, num: true },
	{ id: 'flight', name: 'In flight', width: '6%', value: (r) => r.inFlight, num: true },
	{ id: 'first', name: '', width: '8%', value: (r) => r.answer, num: true, less: 'less' },
	{ id: 'memory', name: 'KV cache', width: '7%', value: (r) => r.utilization, num: true, less: 'less-wide' },
	{ id: 'failed', name: 'Failed', width: '7%', value: (r) => r.failedShare, num: true, less: 'less' },
	{ id: 'heard', name: 'Age', width: '9%', value: (r) => r.heard, num: true, less: 'less-wide' },
];
export const sortable = columns.filter((c) => c.value).map((c) => c.id);

// tableRows are the rows that pass the filter, sorted. Worst first is the default; by state the order changes only when
// a state does.
export function tableRows(rows, r1 = R) {
	const q = r1.q.toLowerCase();
	const words = (r) => [r.address, r.pod, r.node, r.zone, stateWord(r.state), r.state].join(' ').toLowerCase();
	const list = rows.filter((r) => (!q || words(r).includes(q)) && (!r1.state || r.state === r1.state));
	const column = columns.find((c) => c.id === r1.sort) || columns[1];
	const sign1 = r1.up ? 1 : -1;
	if (column.id === 'state') {
		const rank = (r) => stateOrder.indexOf(r.state);
		return list.sort((x, y) => -sign1 * (rank(x) - rank(y)) || x.order - y.order);
	}
	const value = (r) => (known(column.value(r)) ? column.value(r) : -Infinity * sign1);
	return list.sort((x, y) => sign1 * (value(x) - value(y)) || x.order - y.order);
}

function chips(rows) {
	const counts = new Map();
	for (const r of rows) counts.set(r.state, (counts.get(r.state) || 0) + 1);
	if (counts.size < 2) return null;
	return stateOrder.filter((s) => counts.has(s)).map((s) => chip(s, R.state === s, { state: R.state === s ? '' : s },
		sign(kindOf(s)), b(num(counts.get(s))), stateWord(s)));
}

function endpointTable(c, rows) {
	const list = S.listed = S.memo('table ' + [R.q, R.state, R.sort, R.up], () => tableRows(rows));
	const first = list.slice(S.window.from, S.window.to);
	const space = (key, n) => n > 0 && h('tr.space', { key, 'aria-hidden': 'true' }, h('td', { colspan: columns.length,
		style: { height: n * S.rowHeight + 'px' } }));
	const history = S.histories.get(c.name);
	const isFirst = known(c.first_token_mean_seconds) || rows.some((r) => known(r.firstToken));
	const names = { load: 'Load, ' + rangeWords(), work: loadName(c), first: isFirst
		? 'First token' : 'Answer, p99', served: servedWord(c).replace(/^./, (x) => x.toUpperCase()) + ' share, 1 min' };
	const sorted = (id) => (R.sort === id ? (R.up ? 'ascending' : 'descending') : null);
	return h('section.card', { key: 'table' },
		h('header', h('h2', 'Endpoints'), h('div.tools',
			filterField('name, node, zone, state', 'endpoints'), chips(rows)), h('div.end.less', scaleOf(c))),
		h('table.endpoints', { id: 'endpoints', 'aria-rowcount': list.length + 1 },
			h('thead', h('tr', { 'aria-rowindex': 1 }, columns.map((col) => h('th', { key: col.id, scope: 'col',
				class: [col.num && 'num', col.less].filter(Boolean).join(' '), style: { width: col.width },
				'aria-sort': sorted(col.id) },
				col.value ? h('button', { onclick: () => act.sort(col.id) }, names[col.id] || col.name) : names[col.id] ||
					col.name, col.note && h('small.less-wide', h('br'), col.note))))),
			h('tbody',
				space('before', S.window.from),
				first.map((r, i) => endpointRow(c, r, S.window.from + i, history, isFirst, rows.length)),
				space('after', list.length - S.window.to))),
		!list.length && h('p.rest', 'No endpoint matches. ', button(() => act.query({ q: '', state: '' }),
			'Show all ' + num(rows.length))));
}
function endpointRow(c, r, index, history, isFirst, total) {
	const kind = kindOf(r.state);
	const digits = shareDigits(total);
	const most = S.servedMost;
	const past = history && history.byAddress.get(r.address);
	const note = stateNote(c, r);
	return h('tr', { key: r.address, 'data-row': r.address, class: [kind === 'error' || kind === 'warning' ? kind : '',
		index === S.chosen ? 'chosen' : ''].join(' ').trim(), 'aria-rowindex': index + 2 },
		h('td.who', h('div.name', sign(kind), h('a', { href: link(endpointPath(c.name, r.address)), title: r.address },
			r.pod || r.address), r.zone && h('span.zone', r.zone))),
		h('td', { class: 'state is-' + (kind === 'good' ? '' : kind) }, stateWord(r.state), note && h('small', note)),
		h('td.share', h('div.served', meter('', r.served1m / most, known(r.capacityShare) ? r.capacityShare / most : null,
			'part of the capacity ' + pct(r.capacityShare, digits)), h('span.num', { 'data-value': 'served_share_1m' },
			pct(r.served1m, digits)))),
		h('td.strip', past && picture(18, 'Load of ' + r.address + ' over ' + R.range + ', now ' + loadWords(c,
			r.shown), history.rev + S.theme + r.address, charts.strip(past.load, steps(c), history.span, loadTip(c)))),
		h('td.num', { 'data-head': byWork(c) ? 'work' : 'load' }, loadWords(c, r.shown)),
		h('td.num', { 'data-head': 'in flight' }, num(r.inFlight)),
		h('td.num.less', secs(isFirst ? r.firstToken : r.answer)),
		h('td.num.less-wide', pct(r.utilization, 0)),
		h('td', { class: 'num less' + (r.failedShare > 0.01 ? ' is-error' : '') }, pct(r.failedShare,
			known(r.failedShare) && r.failedShare > 0 && r.failedShare < 0.1 ? 1 : 0)),
		h('td', { class: 'num less-wide' + (r.heard > 3 ? ' is-warning' : '') }, known(r.heard) ? ago(r.heard) : dash));
}
function stateNote(c, r) {
	if (r.state === 'drained') return '';
	if (r.override) return overrideWords(r.override); // until when is in the card above
	const i = S.fleet.incidents.find((x) => x.subject.kind === 'endpoint' && x.subject.name === r.address &&
		x.subject.cluster === c.name);
	if (i) return lasts(S.now - seconds(i.since));
	return r.state === 'warming' && known(r.ramp) ? 'trusted ' + pct(r.ramp, 0) : '';
}

const overrideWords = (o) => (o.kind === 'pin' ? 'pinned to ' + pct(o.share) : 'drained');
// operatorsCard lists what operators decided; in a view of one cluster, about that.
function operatorsCard(cluster) {
	const list = S.overrides.filter((o) => !cluster || o.cluster === cluster);
	if (!list.length) return null;
	return card('By hand', 'endpoints that operators drained or pinned, until their time is over', null,
		sheet('Overrides', ['Endpoint', 'What', 'For', 'By', 'Reason', 'After a restart'], list.map((o) => h('tr',
		{ key: o.cluster + ' ' + o.address, 'data-override': o.address },
		h('td', to(endpointPath(o.cluster, o.address), o.pod || o.address), !cluster && h('small',
			' ' + o.cluster)),
		h('td.nowrap.is-warning', sign('warning'), ' ', overrideWords(o)),
		h('td.nowrap', lasts(seconds(o.until) - S.now) + ' more'), h('td.break', o.by || dash),
		h('td.break', o.reason || dash), h('td', o.kept ? 'stays' : 'is lost')))));
}

// ---- Endpoint.

export function endpointView() {
	const instead = absent();
	if (instead) return instead;
	const c = S.cluster;
	const e = S.endpoint && S.endpoint.address === R.endpoint ? S.endpoint : null;
	const inPool = S.rows.some((r) => r.address === R.endpoint);
	if (!e) return inPool ? loadingBlocks() : goneEndpoint(c);
	const row = S.rows.find((r) => r.address === R.endpoint);
	const history = S.histories.get(c.name);
	const events = S.events.filter((x) => !x.cluster || (x.cluster === c.name && (x.count > x.subjects.length ||
		!addressIn(x.subjects[0] || '') || x.subjects.some((s) => addressIn(s) === e.address))));
	const kind = kindOf(e.state);
	return [
		h('div.head', path(c), h('h1', e.pod || e.address),
			h('p', [e.pod && e.address, e.pod && 'namespace ' + e.namespace, e.node && 'node ' + e.node,
				e.zone && 'zone ' + e.zone, e.engine || c.engine, e.role, e.model].filter(Boolean).join(' · ')),
				h('p', { class: kind === 'good' ? '' : 'is-' + kind }, sign(kind), ' ', b(stateWord(e.state))),
			h('div.end.soft', button(() => act.step(-1), h('kbd', 'k'), ' previous'),
				button(() => act.step(1), h('kbd', 'j'), ' next'))),
		leadOf('', [e.why || servedWords(e)]),
		whyCard(c, e, row),
		h('div.wide',
			h('section.card', h('h2.unseen', 'Over time'), stack(history, endpointTracks(c, e, history), events)),
			h('div.column', sendersCard(c, e), lostOne(c, e))),
		numbersCard(e),
	];
}
const servedWord = (c) => (c.served.source === 'completed' ? 'completed' : 'served');
const servedWords = (e) => 'In the last minute it got ' + pct(e.served_share_1m) +
	' of the requests; its part of the capacity is ' + pct(e.capacity_share) + '.';

function goneEndpoint(c) {
	const last = S.events.find((e) => e.type === 'endpoints_left' && e.cluster === c.name &&
		e.subjects.some((s) => addressIn(s) === R.endpoint));
	return [h('div.head', path(c), h('h1', R.endpoint), h('p.is-gone', sign('gone'),
		' not in the pool')),
		empty(last ? 'It left ' + ago(S.now - last.t) : 'It is not in the pool', last
			? 'Discovery does not list it any more since ' + clock(last.t) + ' UTC, so it gets no requests.'
			: 'Discovery does not list this address for ' + c.name + ', so it gets no requests.',
			h('p', to(clusterPath(c.name), 'To ' + c.name)))];
}

const fieldNames = { in_flight: 'in flight', running: 'running', queue: 'waiting', utilization: 'KV cache' };
const flightSources = { access_log: "the Envoys' log", load_reports: "the Envoys' load reports",
	redis: 'the counts in Redis' };
const workSources = { sizes: 'guessed by the sizes of requests', requests: 'each request taken for a mean one',
	in_flight: 'each rise of the count taken for mean requests', expected: 'guessed by its share of the arrivals' };
const inputKinds = { fresh: '', hold: 'late', decay: 'fading', neutral: 'too old', unknown: 'never reported' };

function whyCard(c, e, row) {
	const order = ['in_flight', 'running', 'queue', 'utilization'];
	const inputs = [...e.inputs].sort((x, y) => order.indexOf(x.field) - order.indexOf(y.field)).filter((i) =>
		i.state !== 'unknown');
	const work = byWork(c);
	const v = row && vesselsOf(c, [row], e.address)[0];
	const most = Math.max(e.capacity_share || 0, e.served_share_1m || 0, e.served_share_10s || 0, e.share || 0, 1e-9);
	const bar = (name, value) => [h('span.soft.nowrap', name), meter('.slim', value / most, known(e.capacity_share)
		? e.capacity_share / most : null), h('b', pct(value))];
	const word = servedWord(c);
	return card('Why this weight', 'the decision of ' + (c.decision.at || '').slice(11, 23) + ' UTC', null,
		h('div.steps',
			step(1, 'What is received', h('div.signals', inputs.flatMap((i) => [h('span.soft', fieldNames[i.field] || i.field),
				h('b', i.field === 'utilization' ? pct(i.value, 0) : num(i.value, i.value % 1 ? 1 : 0)),
				h('small', { class: inputKinds[i.state] && i.state !== 'hold' ? 'is-warning' : '' }, secs(i.age_seconds) +
					(inputKinds[i.state] ? ' ' + inputKinds[i.state] : ''))])),
			!inputs.length && h('p.soft', 'Nothing is received from it.'),
			h('p.note', (flightSources[e.in_flight_source] ? 'In flight is from ' + flightSources[e.in_flight_source] +
				(known(e.in_flight_others) ? ', ' + num(e.in_flight_others) + ' of it from the counts of others in Redis' : '') +
				', the rest from its metrics. ' : 'From its metrics. ') +
				'A value is used as it is for 3 s, then fades to the pool’s median until 10 s.')),
			step(2, work ? 'Work there' : 'Load there', h('p.big', work ? secs(e.work.seconds) : num(e.load, 1),
				h('small', work ? 'waiting' : 'requests')),
				h('dl.sums', sums([
					...(work ? [['prompt tokens to compute', num(e.work.prompt_tokens)],
						['in mean requests', num(e.work.requests, 1)]]
						: [['slots', num(e.slots, e.slots % 1 ? 1 : 0) + (e.slots_source ? ', ' + e.slots_source : '')],
							['for each slot', num(e.load_per_slot, 2)]]),
					['from elsewhere', known(e.unproxied) ? (e.unproxied > 0.5 ? num(e.unproxied, 1) : 'none') : dash],
					['speed, of the median', known(e.relative_speed) ? num(e.relative_speed, 2) + ' ×' : dash],
					['trusted with', pct(e.ramp, 0)],
				])), work && h('p.note', 'Prompt tokens: ' + (workSources[e.work.source] || '') + old(e.work.age_seconds) +
					', corrected by its counters' + old(e.work.counted_age_seconds) + '. Prefill rate: ' +
					num(e.work.prefill_rate) + ' tokens/s, ' + e.work.prefill_rate_source +
					old(e.work.prefill_rate_age_seconds) + '.')),
			step(3, 'Filled up to a level', fillCard(c, S.rows, e.address, 190),
				h('p.note', fillWords(c, v, e))),
			step(4, 'Share', h('p.big', pct(e.served_share_1m)), h('small', word + ', 1 min'),
				h('div.bars', bar('1 min', e.served_share_1m), bar('10 s', e.served_share_10s), bar('this decision', e.share)),
				h('p.note', 'Mark: its part of the capacity, ' + pct(e.capacity_share) + '. A decision lasts ' +
					secs(c.decision.horizon_seconds) +
					' and gives nearly all to the emptiest, so its share leaps; what counts is the mean.')),
			step(5, 'Weight sent', h('p.big', num(e.weight)), h('dl.sums', sums([
				['sent', c.last_push.at ? ago(S.now - seconds(c.last_push.at)) : 'never'], ['followed by',
					followers().map((n) => num(n)).join(' of ') + ' Envoys'], ['flag', e.overloaded
					? 'overloaded' : 'none'],
			])), h('p.note', (e.overload_reason ? 'Flagged: ' + e.overload_reason + '. ' : '') +
				'Only the ratio to other weights counts.'))));
}
const step = (n, title, ...kids) => h('div.step', h('h3', h('i', n), title), ...kids);
const sums = (list) => list.flatMap(([k, v]) => [h('dt', k), h('dd', v)]);
function fillWords(c, v, e) {
	if (!v || !known(c.decision.water_level)) return 'No level is known yet.';
	const coming = known(c.decision.arrivals) ? 'The decision is for the requests to come: ' + expected(c) + '. ' : '';
	if (e.override || ['probed', 'doubted', 'unused'].includes(e.state) || kindOf(e.state) === 'error') return coming +
		'It is ' + (e.override ? overrideWords(e.override) : stateWord(e.state)) + ', which the level does not show.';
	if (v.part > 0) return coming + 'It is below the level, so ' + pct(v.part, 0) + ' of what comes is for it.';
	return coming + (known(v.level) && v.level > c.decision.water_level * perLevel(c)
		? 'It is above the level, so it gets the floor until it has worked that off.' : 'It gets the floor.');
}

function endpointTracks(c, e, history) {
	const mine = history?.byAddress.get(e.address) || {};
	const pool = history ? history.pool : {};
	const none = [];
	const word = servedWord(c);
	const share = (mine.served || none).map((v) => (known(v) ? e.capacity_share : null));
	return [
		{ title: 'Share', unit: '%', format: (v) => pct(v), lines: [{ values: share, colour: 'ink2', dashed: true,
			thin: true }, { values: mine.served || none, colour: 'water' }],
			values: [{ name: 'of the capacity', colour: 'ink', dashed: true, now: pct(e.capacity_share) },
				{ name: word, colour: 'water', now: pct(e.served_share_10s), at: mine.served }] },
		{ title: loadName(c), unit: byWork(c) ? 's' : '', format: (v) => loadWords(c, v), lines: [{ values: pool.median ||
			none, colour: 'ink2', dashed: true, thin: true }, { values: mine.load || none, colour: 'water' }],
			values: [{ name: 'pool’s median', colour: 'ink', dashed: true, now: loadWords(c, S.medianShown),
				at: pool.median }, { name: 'here', colour: 'water', now: loadWords(c, byWork(c) ? e.work.seconds
				: e.load_per_slot), at: mine.load }] },
		track('Requests in flight', (v) => num(v), mine.flight, num(e.inputs.find((i) => i.field === 'in_flight')?.value)),
		track(known(e.first_token_mean_seconds) ? 'First token' : 'Whole answer', secs, mine.latency, '', { unit: 's',
			values: [{ name: 'mean', colour: 'water', now: known(e.first_token_mean_seconds) ? secs(e.first_token_mean_seconds)
				: secs(e.latency_seconds) + (e.latency_age_seconds > 60 ? old(e.latency_age_seconds) : ''), at: mine.latency }] }),
	];
}

function sendersCard(c, e) {
	const m = S.matrix && S.matrix.cluster === c.name ? S.matrix : null;
	const at = m ? m.endpoints.indexOf(e.address) : -1;
	let body = h('p.soft', 'No Envoy reports its requests, so it is not known.');
	if (m && at >= 0 && m.envoys.length) {
		const list = m.envoys.map((r) => [r.node_id, r.in_flight[at]]).sort((x, y) => y[1] - x[1]).slice(0, 12);
		const most = Math.max(1, ...list.map(([, n]) => n));
		body = h('div.bars', list.flatMap(([name, n]) => [h('span.label', name),
			meter('.slim' + (e.state === 'outlier' && n > 1 ? '.bad' : ''), n / most), h('b', num(n))]));
	}
	return card('What sends here', 'requests in flight now, by Envoy', null, h('div.inner', body));
}
function lostOne(c, e) {
	return card('If it were lost', 'capacity of ' + c.name + ' in use', null, h('div.inner',
		known(c.use.capacity_used) && known(e.capacity_used_without)
		? [lostBars([['now', c.use.capacity_used], ['without it', e.capacity_used_without]]),
			h('p.note', 'The mark is 100 %: beyond it, queues grow without end.')]
		: h('p.soft', 'Not known yet: the pool was not busy for long enough.')));
}
// numbersCard has everything that the API has of the endpoint, under its keys.
function numbersCard(e) {
	const value = (v) => (v === null || v === '' ? dash : typeof v === 'number' ? String(Number(v.toPrecision(6)))
		: String(v));
	const list = Object.entries(e).flatMap(([k, v]) => (Array.isArray(v) ? [] : v && typeof v === 'object'
		? Object.entries(v).map(([k2, v2]) => [k + '.' + k2, v2]) : [[k, v]]));
	return h('details.card.all', { key: 'numbers' }, h('summary', 'All numbers'),
		h('dl.facts', list.filter(([k]) => k !== 'why')
		.map(([k, v]) => h('div', h('dt', k.replaceAll('_', ' ')), h('dd', value(v))))));
}

// ---- Envoys.

const modes = { events: 'each request', batched: 'many at a time', reports: 'load reports', '': dash };

const envoyStates = {
	refuses: ['error', 'refuses'], behind: ['error', 'does not answer'], unknown: ['warning', 'waits'],
	silent: ['warning', 'silent'], idle: ['none', 'subscribes to nothing'], problem: ['warning', 'needs a look'],
	follows: ['good', 'follows'], shadow: ['good', 'only reports'], unheard: ['warning', 'not heard of'],
};
// readClients makes the list of Envoys of the answer of /clients: those connected and those that left, worst first.
export function readClients(answer, now) {
	const list = answer.clients.map((c) => {
		const subs = c.subscriptions;
		const nack = c.state === 'refuses' && subs.find((s) => s.nack.current);
		const delays = subs.map((s) => s.ack_delay_seconds).filter(known);
		const state = envoyStates[c.state === 'follows' && c.problems.length ? 'problem' : c.state] || ['none', c.state];
		return {
			key: c.node_id + ' ' + c.address, name: c.node_id || 'without a node id', kind: state[0], state: state[1],
				word: state[0] === 'good' && delays.length ? 'lag ' + secs(Math.max(...delays)) : state[1],
			delay: delays.length ? Math.max(...delays) : null, rate: c.signals.request_rate, open: c.signals.open_requests,
				tells: modes[c.signals.mode] ?? c.signals.mode, version: c.version, address: c.address, zone: c.locality,
			connected: seconds(c.connected_at), problems: c.problems, nack: nack && nack.nack,
				nacks: sum(subs.map((s) => s.nacks)), clusters: subs.map((s) => s.resource), gone: false,
		};
	});
	const left = (answer.left || []).map((l) => ({
		key: 'left ' + l.node_id + ' ' + l.address + l.left_at, name: l.node_id || 'without a node id',
		kind: l.state === 'behind' ? 'error' : l.vanished && now - seconds(l.left_at) < 600 ? 'warning' : 'gone',
		state: l.state, word: l.state === 'behind' ? 'does not answer' : l.vanished
			? 'disconnected for ' + lasts(now - seconds(l.left_at)) : 'left ' + ago(now - seconds(l.left_at)),
		version: l.version, address: l.address, zone: l.locality, connected: seconds(l.connected_at),
			leftAt: seconds(l.left_at), reason: l.left_reason, problems: [], clusters: l.clusters, gone: true,
	}));
	const others = answer.elsewhere.filter((e) => e.kind === 'envoy').map((e) => {
		const [kind, word] = envoyStates[e.state] || ['none', e.state];
		const state = e.state === 'unheard' ? word + ' for ' + lasts(now - seconds(e.heard_at)) : word;
		return {
			key: e.replica_id + ' ' + e.node_id + ' ' + e.address, name: e.node_id || 'without a node id', kind, state,
			word: 'at ' + e.replica, address: e.address, connected: seconds(e.connected_at), problems: [],
			clusters: e.clusters, replica: e.replica, gone: false,
		};
	});
	const order = { error: 0, warning: 1, none: 3, good: 3, gone: 4 };
	return [...list, ...left, ...others].sort((x, y) => order[x.kind] - order[y.kind] || x.name.localeCompare(y.name));
}

export function envoysView() {
	const { envoys, clusters } = S.fleet;
	const here = S.envoys.filter((e) => !e.gone || e.state === 'behind');
	const left = S.envoys.filter((e) => e.gone).length;
	const bad = here.filter((e) => e.kind === 'error');
	const [follow, asked] = followers();
	const some = S.envoys.length < S.envoyTotal;
	const delays = here.map((e) => e.delay).filter(known);
	const lead = !S.clientsAt ? ['none', 'Asking for the list.'] : !here.length ? ['none', 'No Envoy is connected. ']
		: [bad.length ? 'error' : follow < asked ? 'none' : 'good', b(num(follow) + ' of ' + num(asked)),
		' follow the current weights', delays.length && !some
		? [', at most ', b(secs(Math.max(...delays))), ' behind. '] : '. ',
		bad.length ? [b(bad.slice(0, 3).map((e) => e.name).join(', ')), bad.length > 3 ? ' and others' : '',
		': see below.'] : ''].flat(2);
	const filter = R.q.toLowerCase();
	const list = S.envoys.filter((e) => !filter || (e.name + ' ' + e.address + ' ' + e.state + ' ' + e.version + ' ' +
		e.zone).toLowerCase().includes(filter));
	const most = S.allEnvoys ? 5000 : 100;
	return [
		h('div.head', h('h1', 'Envoys'), h('p', num(envoys.connected) + ' connected' + (left ? ' · ' + num(left) +
			' left within the hour' : ''))),
		leadOf(lead[0], lead.slice(1)),
		clusters.length > 0 && matrixCard(clusters),
		replicasCard(), pickersCard(),
		!S.clientsAt ? loadingBlocks()[1] : !S.envoys.length ? empty('No Envoy is connected',
			'This prints a configuration of an Envoy:',
			h('p', h('code', 'steelyard bootstrap --cluster ' + (clusters[0]?.name || 'NAME')))) : h('section.card',
			h('header', h('h2', 'Each Envoy'), h('div.tools', filterField('name, address, state', 'Envoys')), h('small.less',
				'one that left stays listed for an hour')),
			sheet('Envoys', ['Envoy', 'State', 'Behind|num', 'Requests/s|num', 'In flight|num far', 'Reports|far', 'Version|far',
				'Address · zone|far', 'Connected|num far', ...(replicated() ? ['Replica|far'] : [])],
			list.slice(0, most).flatMap((e) => envoyRows(e)), 'envoys'),
			list.length > most && h('p.rest', button(() => act.all('Envoys'),
				'Show all ' + num(R.q ? list.length : S.envoyTotal))),
			!list.length && h('p.rest', 'No Envoy matches.')),
	];
}
function envoyRows(e) {
	const about = e.nack ? h('div',
		h('div.quote', h('small', 'Envoy’s words, ' + clock(seconds(e.nack.at)) + ' UTC; ' + plural(e.nacks, 'refusal') +
			' on this connection'), h('code', e.nack.message.slice(0, 4096))),
		h('div', h('small', 'What it means'),
			h('p', 'It keeps the weights that it accepted last, and balances by itself once these are older than ' +
			'push.endpoint_stale_after, if its cluster is failsafe. The other Envoys are not affected.')))
		: e.problems.length ? h('ul', e.problems.map((p) => h('li', { class: 'is-' + p.severity }, p.message)))
			: e.gone ? e.reason : '';
	const words = about ? h('tr.words' + (e.gone ? '.gone' : ''), { key: e.key + ' words' },
		h('td.break', { colspan: 10 }, about)) : null;
	return [h('tr', { key: e.key, class: (e.gone && e.kind !== 'error' ? 'gone ' : '') + (words ? 'more' : ''),
		'data-envoy': e.name },
		h('td', h('div.name', sign(e.kind), h('b.break', e.name))), h('td', { class: 'nowrap is-' + e.kind }, e.gone
			? e.word : e.state),
		h('td.num', secs(e.delay)), h('td.num', rate(e.rate)), h('td.num.far', num(e.open)), h('td.nowrap.far', e.tells ||
			dash), h('td.nowrap.far', e.version || dash), h('td.nowrap.far', [e.address, e.zone].filter(Boolean).join(' · ')),
		h('td.num.far', e.gone ? 'was here ' + lasts(e.leftAt - e.connected) : lasts(S.now - e.connected)),
		replicated() && h('td.nowrap.far', e.replica || 'this one')), words];
}
// replicated reports whether there may be other replicas.
const replicated = () => S.process?.replicas.enabled;
const replicaStates = { live: 'good', gone: 'warning', unreachable: 'error' };
// replicasCard is who else serves Envoys, and what each replica has.
function replicasCard() {
	const r = S.process && S.process.replicas;
	if (!r || !r.enabled) return null;
	const row = (key, kind, state, name, since, address, why, ...cells) => [
		h('tr', { key, class: why ? 'more' : '', 'data-replica': name }, h('td', h('div.name', sign(kind),
			h('b.break', name))), h('td', { class: 'nowrap is-' + kind }, state), h('td.nowrap', known(seconds(since))
			? lasts(S.now - seconds(since)) : dash), h('td.nowrap.far', address || dash), cells.map((c) => h('td.num', c))),
		why ? h('tr.words', { key: key + ' words' }, h('td.break', { colspan: 6 }, why)) : null];
	return card('Replicas', r.connected ? 'each has the counts of all others' : 'counts of others are missing: ' +
		(r.error || 'no reason given'), null, sheet('Replicas', ['Replica', 'State', 'For', 'Address', 'Envoys|num',
		'Last message|num'], [
		row(r.id, r.connected ? 'good' : 'error', r.connected ? 'connected' : 'cut off', r.name + ' (this one)',
			r.since, '', r.lookup_error && 'The others were not found again: ' + r.lookup_error, num(S.fleet.envoys.here),
			dash),
		r.others.map((o) => row(o.id || o.address, replicaStates[o.state] || 'none', o.state, o.name || o.address, o.since,
			o.address, o.error || o.state === 'live' && !o.follows && 'It does not follow this one, and lacks its counts.',
			num(o.envoys), ago(o.age_seconds)))]));
}
// pickersCard is who follows the loads, to name an endpoint for each request.
function pickersCard() {
	const p = S.process && S.process.pickers;
	const others = S.elsewhere.filter((e) => e.kind === 'picker').map((e) => ({ name: e.node_id, address: e.address,
		clusters: e.clusters, since: e.connected_at, replica: e.replica, kind: envoyStates[e.state][0] }));
	if (!p || !p.connected && !others.length) return null;
	return card('Pickers', num(p.connected + others.length) + ' follow the loads, and name the endpoint of each request',
		null, sheet('Pickers', ['Picker', 'Follows', 'For', 'Address', ...(replicated() ? ['Replica'] : [])],
			[...p.list, ...others].map((x) => h('tr', { key: x.name + x.address + x.replica, 'data-picker': x.name },
				h('td', h('div.name', sign(x.kind || 'good'), h('b.break', x.name))),
				h('td.break', x.clusters.join(', ') || 'all clusters'), h('td.nowrap', lasts(S.now - seconds(x.since))),
				h('td.nowrap', x.address), replicated() && h('td.nowrap', x.replica || 'this one')))),
	p.connected > p.list.length && h('p.rest', 'and ' + num(p.connected - p.list.length) + ' more'));
}
function matrixCard(clusters) {
	const pool = clusters.find((c) => c.name === R.pool) || clusters[0];
	const m = S.matrix && S.matrix.cluster === pool.name ? S.matrix : null;
	const choice = clusters.length > 1 && h('span.choice', { style: { 'flex-wrap': 'wrap' } }, clusters.slice(0,
		12).map((c) => h('a', { key: c.name, href: link('/envoys', { pool: c.name, q: R.q }), 'aria-current': c === pool
		? 'true' : null }, c.name)));
	let body = h('p.inner.soft', 'Asking for the counts.');
	if (m && (!m.envoys.length || !m.endpoints.length)) body = h('p.inner.soft', 'No Envoy reports its requests to ' +
		pool.name + ': it needs the access log or the load reports that steelyard bootstrap sets up.');
	else if (m) {
		const states = new Map(S.fleet.incidents.filter((i) => i.subject.kind === 'endpoint' && i.severity === 'error' &&
			i.subject.cluster === pool.name).map((i) => [i.subject.name, 'error']));
		const kinds = new Map(S.envoys.map((e) => [e.name, e.kind]));
		const rows = m.envoys.map((r) => ({ label: r.node_id, name: r.node_id, cells: r.in_flight,
			state: kinds.get(r.node_id) }));
		const named = new Set(m.envoys.map((r) => r.node_id));
		for (const e of S.envoys) if (e.gone && !named.has(e.name) &&
			e.clusters.some((n) => n.split('/')[0] === pool.name)) rows.push({ label: e.name, name: e.name, cells: [],
			note: e.word });
		const label = labels(m.endpoints);
		const cols = m.endpoints.map((a) => ({ label: label(a), name: a, state: states.get(a), go: endpointPath(pool.name,
			a) }));
		const high = rows.length > 60 ? 12 : 28;
		body = h('div.inner', picture(rows.length * high + 36, num(m.total) + ' requests in flight from ' +
			plural(m.envoys.length, 'Envoy') + ' to ' + plural(m.endpoints.length, 'endpoint') + ' of ' + pool.name,
			S.rev + S.theme + pool.name, charts.matrix(rows, cols, high), 'matrix'),
			matrixNumbers(m), m.envoys_left_out > 0 && h('p.note', num(m.envoys_left_out) +
				' more Envoys do not fit; these are the ones with the most requests.'));
	}
	return h('section.card', h('header', h('h2', 'Requests in flight'),
		h('small', 'from each Envoy to each endpoint of ' + (clusters.length > 1 ? '' : pool.name)), choice,
		h('span.end.legend', h('span', 'few', scale(null, 6), 'many'), h('span', h('i.l7'), 'at an endpoint in trouble'))),
	body);
}
// matrixNumbers are the sums of the picture as a table, for those who cannot see it.
const matrixNumbers = (m) => h('table.unseen', h('caption', 'Requests in flight by Envoy'),
	h('thead', h('tr', h('th', { scope: 'col' }, 'Envoy'), h('th', { scope: 'col' }, 'In flight'))),
	h('tbody', m.envoys.slice(0, 100).map((r) => h('tr', { key: r.node_id + r.host }, h('th', { scope: 'row' },
		r.node_id), h('td', num(r.total))))));

// ---- Events.

export function eventsView() {
	const q = R.q.toLowerCase();
	const list = S.events.filter((e) => (!R.kind || e.group === R.kind) &&
		(!q || (e.title + ' ' + e.cluster + ' ' + e.subjects.join(' ')).toLowerCase().includes(q)));
	const tracks = S.fleet.clusters.slice(0, 8).flatMap((c) => {
		const history = S.histories.get(c.name);
		return history ? [track(c.name, (v) => loadWords(c, v), history.pool.median, '', { unit: byWork(c) ? 's' : '',
			height: 48, values: [{ name: 'median load', now: loadWords(c, c.median_shown), at: history.pool.median }] })] : [];
	});
	const history = S.histories.get(S.fleet.clusters[0]?.name);
	return [
		h('div.head', h('h1', 'Events'), h('p', 'the last hour, at most a thousand; ' + (since() || 'times are UTC'))),
		tracks.length > 0 && history && h('section.card', h('h2.unseen', 'Over time'), stack(history, tracks, list)),
		h('section.card', h('header', h('h2', 'What happened'), h('div.tools',
			filterField('cluster, endpoint, Envoy', 'events'),
			eventGroups.map((k) => chip(k, R.kind === k, { kind: R.kind === k ? '' : k },
				b(num(S.events.filter((e) => e.group === k).length)), k)))),
		h('div.inner'), list.length ? eventList(list, S.allEvents ? 1000 : 100) : h('p.rest', S.events.length
			? 'No event matches. ' : nothing()),
		!S.allEvents && list.length > 100 && h('p.rest', button(() => act.all('Events'), 'Show all ' + num(list.length)))),
	];
}

// ---- Help, and what stands in place of a view.

const words = [
	['served share', 'part of the requests that Envoys really sent there, in the last 10 s or minute', 'served_share_1m'],
	['work waiting', 'seconds an engine needs for what it has', 'work.seconds'],
	['load per slot', 'requests there for each one that it can run; above 1, requests wait', 'load_per_slot'],
	['level', 'how far the pool is filled with the requests to come', 'water_level'],
	['warming up', 'new: trusted with a growing part of its capacity', 'reason blackout, ramp'],
	['late, fading, too old',
		'older than 1 s and still used; than 3 s, moving to the pool’s median; than 10 s, the median', 'inputs.state'],
	['blind', 'no usable metrics: it is treated as a median endpoint', 'reason neutral'],
	['metrics unread', 'its metrics page fails; the counts of the Envoys stand in', 'last_scrape.error'],
	['overloaded', 'flagged, because of its queue or its KV cache: Envoys prefer others', 'overloaded'],
];
const keys = [['/', 'filter'], ['f', 'find anything'], ['j k', 'next, previous'], ['Enter', 'open'],
	['u', 'one level up'], ['t', 'next time range'], ['space', 'pause, go on'], ['d', 'light or dark'],
	['g f', 'fleet'], ['g e', 'Envoys'], ['g v', 'events'], ['?', 'this help']];
export const helpView = () => [h('h2', 'Keys and words'), h('div.keys', keys.map(([k, w]) => h('span',
	k.split(' ').map((x) => [h('kbd', x), ' ']), w))),
	h('h3', 'Words'), h('dl.words-list', words.flatMap(([w, means, key]) => [h('dt', w), h('dd', means + '  ',
		h('code', key))])),
	h('p.note', button(() => act.help(false), 'Close'))];

export const goesOn = 'The traffic goes on: Envoys keep their weights, and failsafe ones balance by themselves once ' +
	'these are older than push.endpoint_stale_after.';
export const heldBack = 'It answers other requests, and its stream of events does not arrive: a proxy in between ' +
	'holds it back: it may not buffer text/event-stream.';
export function noAnswer() {
	const pod = S.process && S.process.own_pod;
	return empty(S.error === heldBack ? 'The stream does not arrive' : 'Steelyard does not answer',
		S.error || 'The connection failed.', goesOn,
		pod && pod.name ? h('p', 'Its Pods: ', h('code', 'kubectl -n ' + pod.namespace + ' get pods'))
			: h('p', 'On its machine: ', h('code', 'systemctl status steelyard')), h('p', 'This page tries again.'));
}
