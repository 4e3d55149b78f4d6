// What the page has received: frames of the stream, and what it asks for besides. It has no elements.
import { known, quantile, R, S, seconds } from './base.js';
import { byWork, rangeSeconds, readClients, readEvent } from './views.js';

// The store. rev rises with each change of what is drawn; histories are by cluster.
Object.assign(S, {
	is: 'loading', now: 0, heardAt: 0, attempt: 0, error: '', rev: 0, theme: '',
	fleet: null, cluster: null, rows: [], endpoint: null, matrix: null, events: [], envoys: [], elsewhere: [],
		clientsAt: 0, eventsAt: 0, heads: new Map(),
	process: null, overrides: [],
	histories: new Map(), opened: new Map(), allIncidents: false, allEnvoys: false, allEvents: false, cursor: null,
	chosen: -1, listed: [], window: { from: 0, to: 60 }, rowHeight: 35,
});

const memos = new Map();
// memo keeps the result of f until the data or the theme change.
S.memo = (name, f) => {
	const key = S.rev + S.theme;
	const had = memos.get(name);
	if (had && had.key === key) return had.value;
	const value = f();
	memos.set(name, { key, value });
	if (memos.size > 50) memos.delete(memos.keys().next().value);
	return value;
};

// ask gets JSON of the API; null is what is not there.
export async function ask(path) {
	const answer = await fetch('api/v1/' + path, { signal: AbortSignal.timeout(10000), cache: 'no-store' });
	if (answer.status === 404) return null;
	if (answer.status === 401) location.reload(); // the session has ended: the server asks for a token
	if (!answer.ok) throw new Error('the answer to ' + path + ' is ' + answer.status);
	return answer.json();
}

// ---- Reading a frame.

// order has the states by their byte. One above the level is as healthy as any.
const order = ['', 'ok', 'ok', 'warming', 'late', 'unread', 'unused', 'blind', 'probed', 'overloaded',
	'doubted', 'asleep', 'outlier', 'drained'];
// readColumns decodes the columns: see ClusterFrame in docs/admin-api.md.
export function readColumns(frame, n) {
	const bytes = Uint8Array.from(atob(frame.columns), (c) => c.charCodeAt(0));
	const out = {};
	let at = 0;
	for (const field of frame.fields) {
		const values = (out[field] = new Array(n));
		for (let i = 0; i < n; i++) {
			if (field === 'state') {
				values[i] = order[bytes[at++]] || '';
				continue;
			}
			const v = bytes[at] + 256 * bytes[at + 1];
			at += 2;
			values[i] = v === 65535 ? null : v === 0 ? 0 : 10 ** ((v / 65534) * 14 - 7);
		}
	}
	return out;
}

// perRequest is how many seconds of work a mean request is, for an engine with that prefill rate.
export function perRequest(work, prefill) {
	if (!work || !known(work.prompt_tokens) || !known(prefill) || prefill <= 0) return null;
	return (work.prompt_tokens + 0.75 * (work.output_tokens || 0)) / prefill;
}
// shown is a load as the page shows it: seconds of work where these are known, else requests for each slot.
const shown = (c, load, per) => (!known(load) ? null : !byWork(c) ? load : known(per) ? load * per : null);

function readRow(c, e, i) {
	const input = (name) => e.inputs.find((x) => x.field === name && x.state !== 'neutral') || {};
	const per = known(e.work.seconds) && e.work.requests > 0.01 ? e.work.seconds / e.work.requests
		: perRequest(c.decision.work, e.work.prefill_rate) || perRequest(c.decision.work, c.decision.work.prefill_rate);
	const r = {
		order: i, address: e.address, pod: e.pod, node: e.node, zone: e.zone,
			state: e.state === 'above_level' ? 'ok' : e.state,
			slots: e.slots, ramp: e.ramp, capacity: e.capacity,
			load: e.load, slotsKnown: ['configured', 'learned'].includes(e.slots_source),
		workRequests: e.work.requests, per, loadPerSlot: e.load_per_slot, served1m: e.served_share_1m,
		capacityShare: e.capacity_share, inFlight: known(input('in_flight').value) ? input('in_flight').value : e.load,
		utilization: input('utilization').value, failedShare: e.failed_share_age_seconds > 60 ? null : e.failed_share,
		heard: e.heard_seconds,
		override: e.override,
		firstToken: e.first_token_mean_seconds, answer: e.answer_p99_seconds,
	};
	r.shown = shown(c, r.loadPerSlot, per);
	return r;
}

// setRows takes a whole answer, with all numbers of the endpoints.
export function setRows(c) {
	S.rows = c.endpoints.map((e, i) => readRow(c, e, i));
	S.rowsOf = c.name;
	if (isSmall(c)) {
		setCluster(c);
		S.endpoint = c.endpoints.find((e) => e.address === R.endpoint) || null;
	}
	sizeBars();
}
function sizeBars() {
	const most = Math.max(1e-6, ...S.rows.map((r) => Math.max(r.served1m || 0, r.capacityShare || 0)));
	S.servedMost = Math.min(1, 1.25 * most);
}
// updateRows takes the columns of a frame: same endpoints, same order.
function updateRows(c, frame, statesOnly) {
	const n = S.rows.length;
	const columns = readColumns(frame, n);
	S.rows.forEach((r, i) => {
		r.state = columns.state[i] || r.state;
		if (statesOnly) return;
		if (columns.load) {
			r.loadPerSlot = columns.load[i];
			r.workRequests = columns.load[i];
			r.load = known(r.loadPerSlot) && known(r.slots) ? r.loadPerSlot * r.slots : r.loadPerSlot && r.load;
			r.shown = shown(c, r.loadPerSlot, r.per);
		}
		if (columns.in_flight) r.inFlight = known(columns.in_flight[i]) ? Math.round(columns.in_flight[i]) : r.load;
	});
}

// take applies a frame. It returns whether the whole answer of the cluster is needed: its endpoints have changed.
export function take(frame) {
	const restarted = S.fleet && S.fleet.started_at !== frame.fleet.started_at;
	S.now = seconds(frame.at);
	S.fleet = frame.fleet;
	if (restarted) {
		S.events = [];
		S.histories.clear();
	}
	S.rev++;
	for (const c of S.fleet.clusters) {
		const head = S.heads.get(c.name);
		const per = head && perRequest(head.decision.work, head.decision.work.prefill_rate);
		c.median_shown = shown(c, c.median_load, per);
		c.fullest_shown = shown(c, c.fullest_load, per);
	}
	let needed = restarted;
	if (frame.cluster) {
		const c = frame.cluster.cluster;
		const changed = S.rowsOf !== c.name || S.order !== frame.cluster.order || S.rows.length !== c.endpoint_counts.total;
		if (S.rowsOf !== c.name) S.rows = [];
		S.order = frame.cluster.order;
		needed = needed || changed;
		// What is shown of a small pool is of one answer, so that numbers, picture and sentence agree; see setRows.
		const small = !changed && isSmall(c);
		if (!changed && frame.cluster.columns) updateRows(c, frame.cluster, small);
		if (!small || S.cluster.name !== c.name) setCluster(c);
		if (!small || !frame.endpoint || S.endpoint?.address !== frame.endpoint.address) S.endpoint = frame.endpoint;
		const at = S.endpoint ? S.rows.findIndex((r) => r.address === S.endpoint.address) : -1;
		if (at >= 0 && !small) S.rows[at] = readRow(c, S.endpoint, at);
	}
	if (frame.matrix) S.matrix = frame.matrix;
	return needed;
}
const isSmall = (c) => c.endpoint_counts.total <= 40;
function setCluster(c) {
	S.cluster = c;
	poolNumbers(c);
}
function poolNumbers(c) {
	const per = perRequest(c.decision.work, c.decision.work.prefill_rate);
	S.secondsPerLevel = per;
	const mine = S.fleet.clusters.find((x) => x.name === c.name) || {};
	S.medianShown = shown(c, c.decision.median_load, per);
	S.fullestShown = S.rows.length ? Math.max(...S.rows.map((r) => (known(r.shown) ? r.shown : 0)))
		: shown(c, mine.fullest_load, per);
	S.inFlight = mine.in_flight;
}

// ---- What is asked for besides.

export async function loadHeads() {
	const list = (await ask('clusters')).clusters;
	S.heads = new Map(list.map((c) => [c.name, c]));
	S.rev++;
}
// loadProcess asks for the process, and for what operators decided.
export async function loadProcess() {
	[S.process, S.overrides] = await Promise.all([ask('status'), ask('overrides').then((o) => (o ? o.overrides : []))]);
	S.rev++;
}
export async function loadClients() {
	const limit = S.allEnvoys || R.q ? 0 : 300;
	const answer = await ask('clients?sort=worst&limit=' + limit);
	S.envoys = readClients(answer, S.now);
	S.elsewhere = answer.elsewhere;
	S.envoyTotal = answer.total + answer.left.length + answer.elsewhere.filter((e) => e.kind === 'envoy').length;
	S.clientsAt = S.now;
	S.rev++;
}
// loadEvents asks for those after the latest that are known, and for the few before it, which may have grown.
export async function loadEvents() {
	const latest = S.events.length ? S.events[0].id : 0;
	const answer = await ask('events?since=' + Math.max(0, latest - 10));
	const all = new Map(S.events.map((e) => [e.id, e]));
	for (const e of answer.events) all.set(e.id, readEvent(e));
	S.events = [...all.values()].filter((e) => e.id >= answer.oldest_id).sort((x, y) => y.id - x.id).slice(0, 1000);
	S.eventsAt = S.now;
	S.rev++;
}

// loadHistory asks for what the view draws of a cluster: the loads of all endpoints, or everything of one.
export async function loadHistory(name) {
	const range = rangeSeconds();
	const one = R.view === 'endpoint';
	const fields = R.view === 'events' ? 'none' : one ? 'shares,served,loads,in_flight,latency' : 'loads';
	const points = one || R.view === 'events' ? 150 : R.view === 'fleet' ? 60 : S.rows.length > 300 ? 75 : 100;
	let path = 'clusters/' + encodeURIComponent(name) + '/history?window=' + R.range + '&points=' + points +
		'&fields=' + fields;
	if (one) path += '&endpoint=' + encodeURIComponent(R.endpoint);
	const w = await ask(path);
	if (!w) return;
	const c = (S.cluster && S.cluster.name === name && S.cluster) || S.heads.get(name);
	S.histories.set(name, readHistory(w, c, range, S.rows));
	S.rev++;
}

// readHistory spreads the moments of an answer over the range, so that a gap stays one, and makes loads seconds.
export function readHistory(w, c, range, rows) {
	const step = Math.max(1, w.step_seconds || 1);
	const n = Math.max(1, Math.round(range / step));
	const to = w.at.length ? seconds(w.at[w.at.length - 1]) : S.now;
	const span = { from: to - n * step, to, step };
	const places = w.at.map((t) => n - 1 - Math.round((to - seconds(t)) / step));
	const spread = (values, factor = 1) => {
		const out = new Array(n).fill(null);
		(values || []).forEach((v, i) => {
			if (!known(v) || !(places[i] >= 0)) return;
			out[places[i]] = v * factor;
			// Moments are not exactly a step apart: that leaves no gap.
			const hole = places[i] - 1;
			if (i && hole - 1 === places[i - 1] && known(values[i - 1])) out[hole] = v * factor;
		});
		return out;
	};
	const work = c && byWork(c);
	const per = work ? perRequest(c.decision.work, c.decision.work.prefill_rate) : 1;
	const factor = (address) => (work ? rows.find((r) => r.address === address)?.per || per || 0 : 1);
	const factors = rows.length > 40 && work ? new Map(rows.map((r) => [r.address, r.per])) : null;
	const traces = w.endpoints.map((t) => ({
		address: t.address, load: spread(t.loads, factors ? factors.get(t.address) || per || 0 : factor(t.address)),
			served: spread(t.served),
		flight: spread(t.in_flight), latency: spread(t.latency_seconds),
	}));
	const pool = {
		rate: spread(w.pool.arrival_rate), median: spread(w.pool.median_load, per || 0), most: spread(w.pool.fullest_load,
			per || 0),
		flight: spread(w.pool.in_flight), first: spread(w.pool.first_token_mean_seconds),
			answer: spread(w.pool.answer_p99_seconds), used: spread(w.pool.capacity_used),
	};
	if (traces.length > 2 && w.fields && w.fields.includes('loads')) {
		const sorted = Array.from({ length: n }, (_, i) => traces.map((t) => t.load[i]).filter(known).sort((x, y) => x - y));
		pool.low = sorted.map((s) => (s.length ? quantile(s, 0.1) : null));
		pool.high = sorted.map((s) => (s.length ? quantile(s, 0.9) : null));
	}
	return { span, n, pool, rows: traces, byAddress: new Map(traces.map((t) => [t.address, t])), rev: S.rev + '-' + to };
}
