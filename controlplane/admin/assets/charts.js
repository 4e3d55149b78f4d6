// Pictures on canvases. A drawing is a function of a 2D context, a width and a height in CSS pixels; it may return
// { tip, go }: what is under the pointer, in lines of text, and which route a click leads to.
import { clock, known, minute, quantile, sum } from './base.js';

let colours = {};
const names = ['ground', 'panel', 'raised', 'rule', 'edge', 'ink', 'ink2', 'ink3', 'link', 'water', 'shallow', 'stock',
	'trough', 'warn', 'warn-sign', 'bad', 'bad-sign', 'l0', 'l1', 'l2', 'l3', 'l4', 'l5', 'l6', 'l7'];
let shades = [];

// readColours takes the colours from the style, for the theme that holds now.
export function readColours() {
	const probe = document.createElement('i');
	document.body.append(probe);
	colours = { font: getComputedStyle(document.body).fontFamily };
	for (const name of names) {
		probe.style.color = 'var(--' + name + ')';
		colours[name] = getComputedStyle(probe).color;
	}
	probe.remove();
	const stops = [0, 1, 2, 3, 4, 5].map((i) => colours['l' + i].match(/[\d.]+/g).map(Number));
	shades = Array.from({ length: 61 }, (_, i) => {
		const x = Math.min(4.999, i / 12);
		const k = Math.floor(x);
		return 'rgb(' + stops[k].slice(0, 3).map((v, j) => Math.round(v + (stops[k + 1][j] - v) * (x - k))).join() + ')';
	});
}

// The steps of the colours of a load: seconds of work, or requests for each slot.
export const stepsOf = (byWork) => (byWork ? [0.05, 0.1, 0.2, 0.4, 0.8, 2, 4] : [0.25, 0.5, 0.75, 1, 2, 4, 8]);

export function shade(v, steps) {
	if (v >= steps[6]) return colours.l7;
	if (v >= steps[5]) return colours.l6;
	let i = 0;
	while (i < 5 && v >= steps[i]) i++;
	const from = i ? steps[i - 1] : 0;
	const part = Math.min(1, Math.max(0, (v - from) / (steps[i] - from)));
	return shades[Math.min(60, Math.round((i + part) * 10))];
}

// paint draws a canvas, in the resolution of the screen.
export function paint(canvas) {
	const w = canvas.clientWidth;
	const hgt = canvas.clientHeight;
	if (!w || !hgt || !canvas.draw) return;
	const ratio = Math.min(2, window.devicePixelRatio || 1);
	const [pw, ph] = [Math.round(w * ratio), Math.round(hgt * ratio)];
	if (canvas.width !== pw || canvas.height !== ph) [canvas.width, canvas.height] = [pw, ph];
	const g = canvas.getContext('2d');
	g.setTransform(ratio, 0, 0, ratio, 0, 0);
	g.clearRect(0, 0, w, hgt);
	canvas.under = canvas.draw(g, w, hgt) || {};
	canvas.painted = canvas.rev + ' ' + pw + ' ' + ph;
}
export const isPainted = (canvas) => {
	const ratio = Math.min(2, window.devicePixelRatio || 1);
	return canvas.painted === canvas.rev + ' ' + Math.round(canvas.clientWidth * ratio) + ' ' +
		Math.round(canvas.clientHeight * ratio);
};

function write(g, words, x, y, { size = 11, weight = 400, colour = colours.ink3, align = 'left' } = {}) {
	g.font = weight + ' ' + size + 'px ' + colours.font;
	g.fillStyle = colour;
	g.textAlign = align;
	g.textBaseline = 'alphabetic';
	g.fillText(words, x, y);
}
function rule(g, x1, y1, x2, y2, colour, dashes = []) {
	g.strokeStyle = colour;
	g.lineWidth = 1;
	g.setLineDash(dashes);
	g.beginPath();
	g.moveTo(x1, y1);
	g.lineTo(x2, y2);
	g.stroke();
	g.setLineDash([]);
}

const upright = (g, x, y1, y2, colour, dashes) => rule(g, Math.round(x) + 0.5, y1, Math.round(x) + 0.5, y2, colour,
	dashes);

function box(g, colour, x, y, w, hgt) {
	g.fillStyle = colour;
	g.fillRect(x, y, w, hgt);
}

// ruler draws the steps of a quantity between the heights bottom and top, and returns what gives the height of a value.
// What is higher than most times the last step is drawn there.
function ruler(g, steps, words, left, right, bottom, top, most = 1) {
	const end = steps[steps.length - 1];
	const Y = (v) => bottom - (bottom - top) * Math.min(most, v / end);
	for (const s of steps) {
		const y = Math.round(Y(s)) + 0.5;
		rule(g, left, y, right, y, s ? colours.rule : colours.edge);
		write(g, s ? words(s) : '0', left - 6, y + 3.5, { align: 'right' });
	}
	return Y;
}
const levelLine = (g, y, from, to) => rule(g, from, Math.round(y) + 0.5, to, Math.round(y) + 0.5, colours.link, [5, 3]);
// line begins a path through values; a single one is a dot of this width.
function line(g, values, [from, to], X, Y, dot) {
	g.beginPath();
	for (let i = from; i < to; i++) g.lineTo(X(i), Y(values[i]));
	if (to - from === 1) g.lineTo(X(from) + dot, Y(values[from]));
}

// A span is the time that is shown: from and to in seconds, and the seconds between two values.

// row draws the values of one endpoint over time as colours; where none is known, a thin line.
function row(g, values, steps, x0, y, w, hgt, gap) {
	const n = values.length;
	for (let i = 0; i < n; ) {
		const colour = known(values[i]) ? shade(values[i], steps) : null;
		let j = i + 1;
		while (j < n && (known(values[j]) ? shade(values[j], steps) : null) === colour) j++;
		const [x1, x2] = [Math.round(x0 + (i * w) / n), Math.round(x0 + (j * w) / n)];
		g.fillStyle = colour || gap;
		if (colour) g.fillRect(x1, y, x2 - x1, hgt);
		else g.fillRect(x1, y + hgt / 2 - 0.5, x2 - x1, 1);
		i = j;
	}
}

// strip is the load of one endpoint over time; marks are the moments at which it was flagged, as true.
export function strip(values, steps, span, write1) {
	return (g, w, hgt) => {
		row(g, values, steps, 0, 0, w, hgt, colours.trough);
		return { tip: (x) => at(values, x / w, span, write1) };
	};
}
function at(values, part, span, write1) {
	const i = Math.min(values.length - 1, Math.max(0, Math.floor(part * values.length)));
	return [clock(span.from + (i + 1) * span.step), known(values[i]) ? write1(values[i]) : 'not known'];
}

// heatmap has a line for each endpoint, or for the fullest of several where they are more than the lines.
export function heatmap(rows, steps, span, write1) {
	return (g, w, hgt) => {
		const lines = Math.min(rows.length, Math.floor(hgt / 2));
		const apart = hgt / lines >= 5 ? 1 : 0;
		const of = (i) => [Math.floor((i * rows.length) / lines), Math.max(1, Math.floor(((i + 1) * rows.length) / lines))];
		for (let i = 0; i < lines; i++) {
			const [y1, y2] = [Math.round((i * hgt) / lines), Math.round(((i + 1) * hgt) / lines)];
			const [a, b] = of(i);
			let { values } = rows[a];
			if (b - a > 1) values = values.map((_, k) => rows.slice(a, b).reduce((m, r) => (!(m >= r.values[k]) &&
				known(r.values[k]) ? r.values[k] : m), null));
			row(g, values, steps, 0, y1, w, y2 - y1 - apart, colours.trough);
		}
		const rowAt = (y) => rows[Math.min(rows.length - 1, Math.floor((y / hgt) * rows.length))];
		return {
			tip: (x, y) => [rowAt(y).name, ...at(rowAt(y).values, x / w, span, write1)],
			go: (x, y) => rowAt(y).go,
		};
	};
}

// spark is a small line, from zero to somewhat above the largest value.
export function spark(values) {
	return (g, w, hgt) => {
		const top = 1.15 * Math.max(...values.filter(known), 0) || 1;
		const X = (i) => (i / Math.max(1, values.length - 1)) * w;
		const Y = (v) => hgt - 1 - (hgt - 3) * Math.min(1, v / top);
		for (const [from, to] of pieces(values)) {
			line(g, values, [from, to], X, Y, 1);
			g.strokeStyle = colours.water;
			g.lineWidth = 1.4;
			g.stroke();
			g.lineTo(X(to - 1), hgt);
			g.lineTo(X(from), hgt);
			g.closePath();
			g.globalAlpha = 0.45;
			g.fillStyle = colours.shallow;
			g.fill();
			g.globalAlpha = 1;
		}
	};
}
// pieces are the ranges of values without a gap.
function pieces(values) {
	const out = [];
	values.forEach((v, i) => {
		if (!known(v)) return;
		if (i && known(values[i - 1])) out[out.length - 1][1] = i + 1;
		else out.push([i, i + 1]);
	});
	return out;
}

// Charts under one time axis.
const gutter = 44;
const right = 8;
export const timeAt = (x, w, span) => span.from + ((x - gutter) / (w - gutter - right)) * (span.to - span.from);
const xOf = (t, w, span) => gutter + ((t - span.from) / (span.to - span.from)) * (w - gutter - right);

// ticks are at most n round steps from 0 to beyond v.
function ticks(v, n) {
	if (!(v > 0)) return [0, 1];
	const unit = 10 ** Math.floor(Math.log10(v / n));
	const step = [1, 2, 2.5, 5, 10, 20].map((m) => m * unit).find((m) => Math.ceil(v / m - 1e-9) <= n);
	return Array.from({ length: Math.ceil(v / step - 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}
function label(v, unit) {
	const digits = Number((unit === '%' ? 100 * v : unit === 's' && v < 0.1 ? 1000 * v : v).toPrecision(3));
	return digits.toLocaleString('en-GB') + (unit === '%' ? ' %' : unit === 's' ? (v < 0.1 ? ' ms' : ' s') : '');
}

// chart draws lines [{ values, colour, dashed }] and a band [low, high] over the span.
export function chart({ lines, band, unit, format }, span, events, cursor) {
	return (g, w, hgt) => {
		const all = [...lines.flatMap((l) => l.values), ...(band ? band[1] : [])].filter(known);
		const top = Math.max(...all, 0);
		// One value that leaps must not flatten all others: the axis ends at four times the usual, and says so.
		const others = lines.filter((l) => !l.thin || lines.length === 1).flatMap((l) => l.values).filter(known);
		const usual = band && others.length ? 4 * quantile(others.sort((a, b) => a - b), 0.9) : 0;
		const cut = usual > 0 && top > 1.5 * usual ? usual : Infinity;
		const steps = ticks(1.03 * Math.min(top, cut), hgt > 76 ? 3 : 2);
		const [y0, y1] = [10, hgt - 5];
		const Y = ruler(g, steps, (v) => label(v, unit), gutter, w - right, y1, y0, 1.05);
		const n = lines[0].values.length;
		const X = (i) => xOf(span.from + (i + 1) * span.step, w, span);
		if (band) {
			for (const [from, to] of pieces(band[1])) {
				g.beginPath();
				for (let i = from; i < to; i++) g.lineTo(X(i), Y(band[1][i]));
				for (let i = to - 1; i >= from; i--) g.lineTo(X(i), Y(band[0][i] || 0));
				g.fillStyle = colours.shallow;
				g.fill();
			}
		}
		marks(g, w, hgt, span, events, cursor);
		for (const l of lines) {
			g.strokeStyle = colours[l.colour];
			g.lineWidth = l.thin ? 1.2 : 1.7;
			g.setLineDash(l.dashed ? [4, 3] : []);
			for (const piece of pieces(l.values)) {
				line(g, l.values, piece, X, Y, 1.5);
				g.stroke();
			}
			g.setLineDash([]);
		}
		if (!all.length) write(g, n ? 'not known in this time' : 'no history yet', gutter + 8, (y0 + y1) / 2 + 4);
		if (top > cut) write(g, 'up to ' + format(top), w - right - 2, y0 + 8, { align: 'right', colour: colours.warn,
			weight: 600 });
	};
}
function marks(g, w, hgt, span, events, cursor) {
	for (const e of events) {
		const t = e.t;
		if (t < span.from || t > span.to) continue;
		g.globalAlpha = 0.65;
		upright(g, xOf(t, w, span), 0, hgt, e.kind === 'error' ? colours['bad-sign'] : e.kind === 'warning'
			? colours['warn-sign'] : colours.ink3, [2, 3]);
		g.globalAlpha = 1;
	}
	if (known(cursor)) upright(g, xOf(cursor, w, span), 0, hgt, colours.ink);
}

// lane has a sign for each event, and names the worst where there is room.
export function lane(events, span, cursor) {
	return (g, w, hgt) => {
		const list = events.filter((e) => e.t >= span.from && e.t <= span.to).sort((a, b) => a.t - b.t);
		const xs = list.map((e) => xOf(e.t, w, span));
		for (let i = xs.length - 2; i >= 0; i--) xs[i] = Math.min(xs[i], Math.max(gutter, xs[i + 1] - 13));
		list.forEach((e, i) => mark(g, e, xs[i], hgt / 2));
		const taken = xs.map((x) => [x - 8, x + 8]);
		const order = ['error', 'warning', 'gone', 'new', 'good', 'none'];
		const worst = [...list.keys()].sort((a, b) => order.indexOf(list[a].kind) - order.indexOf(list[b].kind) || b - a);
		for (const i of worst.slice(0, 30)) {
			const { kind, brief } = list[i];
			g.font = (kind === 'error' ? 600 : 400) + ' 11px ' + colours.font;
			const width = g.measureText(brief).width;
			const free = (a, b) => a > gutter - 6 && b < w && taken.every(([c, d], k) => k === i || b < c || a > d);
			const x = [xs[i] + 9, xs[i] - 9 - width].find((left) => free(left, left + width));
			if (x === undefined) continue;
			taken.push([x - 4, x + width + 4]);
			const colour = kind === 'error' ? colours.bad : kind === 'warning' ? colours.warn : colours.ink2;
			write(g, brief, x, hgt / 2 + 4, { colour, weight: kind === 'error' ? 600 : 400 });
		}
		if (!list.length) write(g, 'nothing happened', gutter, hgt / 2 + 4);
		if (known(cursor)) upright(g, xOf(cursor, w, span), 0, hgt, colours.ink);
		const near = (x) => { let best = -1; xs.forEach((v, i) => { if (Math.abs(v - x) < 9) best = i; }); return list[
			best]; };
		return {
			tip: (x) => { const e = near(x); return e && [e.title, clock(e.t), e.text]; },
			go: (x) => near(x)?.go,
		};
	};
}
function mark(g, e, x, y) {
	const paints = { error: 'bad-sign', warning: 'warn-sign', new: 'water' };
	g.fillStyle = g.strokeStyle = colours[paints[e.kind] || 'ink3'];
	g.lineWidth = 1.7;
	g.beginPath();
	if (e.kind === 'error') { g.moveTo(x, y - 6); g.lineTo(x + 6, y); g.lineTo(x, y + 6); g.lineTo(x - 6, y); g.fill(); }
	else if (e.kind === 'warning') { g.moveTo(x, y - 6); g.lineTo(x + 6, y + 5); g.lineTo(x - 6, y + 5); g.fill(); }
	else if (e.kind === 'none') g.fillRect(x - 4.5, y - 4.5, 9, 9);
	else if (e.kind === 'good') { g.arc(x, y, 4.5, 0, 7); g.fill(); }
	else { g.setLineDash(e.kind === 'gone' ? [2.2, 1.8] : []); g.arc(x, y, 4.2, 0, 7); g.stroke(); g.setLineDash([]); }
}

export function timeAxis(span, cursor) {
	return (g, w) => {
		const length = span.to - span.from;
		const step = [10, 30, 60, 180, 600, 900].find((s) => length / s <= (w > 420 ? 7 : 4)) || 1800;
		for (let t = Math.ceil(span.from / step) * step; t <= span.to; t += step) {
			const x = xOf(t, w, span);
			if (x < w - 16) write(g, step < 60 ? clock(t) : minute(t), x, 12, { align: 'center' });
		}
		if (!known(cursor)) return;
		const x = Math.min(w - 27, xOf(cursor, w, span));
		box(g, colours.ink, x - 27, 0, 54, 16);
		write(g, clock(cursor), x, 12, { align: 'center', colour: colours.panel, weight: 600 });
	};
}

// vessels draws one for each endpoint, by zone: width in requests for each unit of level, wide up to its brim; level
// is its own, to the one that the requests to come fill it to, part its part of them.
export function vessels(list, level, { format, percent, chosen }) {
	return (g, w, hgt) => {
		const [left, bottom, y0] = [46, hgt - 34, 24];
		const zones = [...new Set(list.map((v) => v.zone))].sort();
		const gap = 3;
		const between = zones.length > 1 ? 12 : 0;
		const room = w - left - 4 - gap * list.length - between * (zones.length - 1);
		const scale = room / Math.max(1e-9, sum(list.map((v) => Math.max(v.wide, v.width))));
		const levels = list.map((v) => v.level).filter(known).sort((a, b) => a - b);
		const usual = Math.max(2 * level, 1.2 * (quantile(levels, 0.75) || 0), 1e-6);
		const top = levels.length && levels[levels.length - 1] <= 1.6 * usual ? Math.max(1.15 * levels[levels.length - 1],
			1.4 * level) : usual;
		const steps = ticks(top, 4);
		const end = steps[steps.length - 1];
		const Y = ruler(g, steps, format, left, w, bottom, y0);
		const places = [];
		let x = left + gap;
		zones.forEach((zone, k) => {
			const from = x;
			for (const v of list.filter((e) => e.zone === zone)) {
				const full = Math.max(3, Math.max(v.wide, v.width) * scale);
				vessel(g, v, { x, full, bottom, top: y0, Y, end, chosen, percent, scale });
				places.push([x - gap / 2, x + full + gap / 2, v]);
				if (full >= 16) write(g, v.label, x + full / 2, bottom + 12, { align: 'center', size: 10, colour: v.chosen
					? colours.ink : colours.ink3, weight: v.chosen ? 700 : 400 });
				x += full + gap;
			}
			if (zone) write(g, zone, (from + x - gap) / 2, hgt - 6, { align: 'center', size: 10 });
			if (zone) rule(g, from, hgt - 17.5, x - gap, hgt - 17.5, colours.edge);
			x += k < zones.length - 1 ? between : 0;
		});
		if (known(level)) levelLine(g, Y(level), left, w);
		const over = (px) => places.find(([a, b]) => px >= a && px < b)?.[2];
		return { tip: (px) => over(px)?.tip, go: (px) => over(px)?.go };
	};
}

function vessel(g, v, { x, full, bottom, top, Y, end, chosen, percent, scale }) {
	// Below its brim a vessel is as wide as its slots, above it as its capacity.
	const widthAt = (l) => Math.max(3, (l < v.brim ? v.wide : v.width) * scale);
	const part = (from, to, colour) => {
		for (const [a, b] of [[from, Math.min(to, v.brim)], [Math.max(from, v.brim), to]]) {
			if (b <= a) continue;
			const wd = widthAt((a + b) / 2);
			box(g, colour, x + (full - wd) / 2, Y(b), wd, Y(a) - Y(b));
		}
	};
	g.globalAlpha = chosen && !v.chosen ? 0.45 : 1;
	box(g, colours.raised, x, top, full, bottom - top);
	const stock = v.state === 'error' ? colours['bad-sign'] : v.state === 'warning' ? colours['warn-sign']
		: colours.stock;
	if (known(v.level)) part(0, Math.min(v.level, end), stock);
	if (known(v.to) && v.to > v.level) part(v.level, v.to, colours.water);
	for (const side of [x, x + full - 1]) upright(g, side, top, bottom, v.chosen ? colours.link : colours.edge);
	if (!known(v.level)) {
		for (let y = bottom, d; y > top; y -= 8) {
			d = Math.min(full, y - top);
			rule(g, x, y, x + d, y - d, colours.edge);
		}
	}
	if (v.level > end) {
		box(g, colours.panel, x - 1, top + 10, full + 2, 4);
		write(g, v.words, x + full / 2, top - 6, { align: 'center', size: 10, weight: 600, colour: v.state === 'error'
			? colours.bad : colours.ink2 });
	} else if (v.part >= 0.005 && full >= 22) {
		write(g, percent(v.part), x + full / 2, Math.min(Y(v.to), Y(v.level)) - 4, { align: 'center', size: 10,
			weight: 650, colour: colours.link });
	}
	g.globalAlpha = 1;
}

// skyline is the same for many endpoints, from the emptiest; the chosen one is marked.
export function skyline(list, level, { format }) {
	return (g, w, hgt) => {
		const sorted = list.filter((v) => known(v.level)).sort((a, b) => a.level - b.level);
		const [left, bottom, y0] = [46, hgt - 18, 22];
		if (!sorted.length) return write(g, 'no load is known', left, hgt / 2);
		const p98 = quantile(sorted, 0.98).level;
		const steps = ticks(Math.max(1.3 * p98, 1.6 * level, 1e-6), 4);
		const end = steps[steps.length - 1];
		const Y = ruler(g, steps, format, left, w, bottom, y0);
		const n = sorted.length;
		const width = (w - left) / n;
		const bars = Math.min(n, Math.floor(w - left));
		for (let i = 0; i < bars; i++) {
			const v = sorted[Math.floor((i * n) / bars)];
			const [x1, x2] = [left + (i * (w - left)) / bars, left + ((i + 1) * (w - left)) / bars + 0.3];
			box(g, v.chosen ? colours.link : colours.stock, x1, Y(v.level), x2 - x1, bottom - Y(v.level));
			if (v.to > v.level) { g.fillStyle = colours.water; g.fillRect(x1, Y(v.to), x2 - x1, Y(v.level) - Y(v.to)); }
		}
		const mine = sorted.findIndex((v) => v.chosen);
		if (mine >= 0) {
			const x = left + (mine + 0.5) * width;
			g.fillStyle = colours.link;
			g.beginPath();
			g.moveTo(x, Y(sorted[mine].level) - 3);
			g.lineTo(x - 5, Y(sorted[mine].level) - 12);
			g.lineTo(x + 5, Y(sorted[mine].level) - 12);
			g.fill();
		}
		levelLine(g, Y(level), left, w);
		const below = sorted.filter((v) => v.level < level).length;
		write(g, below + (below === 1 ? ' endpoint' : ' endpoints') + ' below the level', left + 6, y0 - 8,
			{ colour: colours.link, weight: 600 });
		const above = sorted.filter((v) => v.level > end);
		if (above.length) write(g, above.length + ' above ' + format(end) + ', up to ' + format(sorted[n - 1].level), w,
			y0 - 8, { align: 'right', colour: colours.warn, weight: 600 });
		write(g, 'emptiest', left, hgt - 4);
		write(g, 'fullest', w, hgt - 4, { align: 'right' });
		const over = (px) => sorted[Math.min(n - 1, Math.max(0, Math.floor((px - left) / width)))];
		return { tip: (px) => over(px).tip, go: (px) => over(px).go };
	};
}

// squares has one for each endpoint; those that need a look have a frame.
export function squares(list, steps, size) {
	return (g, w) => {
		const per = Math.max(1, Math.floor(w / size));
		list.forEach((e, i) => {
			const [x, y] = [(i % per) * size, Math.floor(i / per) * size];
			box(g, known(e.value) ? shade(e.value, steps) : colours.panel, x + 1, y + 1, size - 3, size - 3);
			if (e.frame) {
				g.strokeStyle = colours[{ error: 'bad-sign', warning: 'warn-sign', new: 'water' }[e.frame]];
				g.lineWidth = 2;
				g.strokeRect(x + 1, y + 1, size - 3, size - 3);
			} else if (!known(e.value)) {
				g.strokeStyle = colours.edge;
				g.lineWidth = 1;
				g.strokeRect(x + 1.5, y + 1.5, size - 4, size - 4);
			}
		});
		const over = (x, y) => list[Math.floor(y / size) * per + Math.floor(x / size)];
		return { tip: (x, y) => over(x, y)?.tip, go: (x, y) => over(x, y)?.go };
	};
}

// matrix: a row for each Envoy, a column for each endpoint, requests in flight; null is not known.
// columns: { label, state, go }, rows: { label, state, cells, note }. It returns no text where a cell is too small.
export function matrix(rows, columns, height) {
	return (g, w) => {
		const [left, right] = [Math.min(130, Math.max(60, w * 0.14)), 44];
		const cw = (w - left - right) / columns.length;
		const most = Math.max(1, ...rows.flatMap((r) => r.cells.filter(known)));
		rows.forEach((r, j) => {
			const y = j * height;
			clip(g, r.label, left - 8, y + height / 2 + 4, left - 10, r.state);
			if (r.note) { write(g, r.note, left + 4, y + height / 2 + 4); return; }
			columns.forEach((c, i) => {
				const v = r.cells[i];
				const x = left + i * cw;
				if (!known(v)) return;
				const bad = c.state === 'error' && v > 0;
				const part = v / most;
				box(g, bad ? colours[part > 0.5 ? 'l7' : 'l6'] : shades[Math.round(60 * part)], x + 0.5, y + 0.5,
					Math.max(0.7, cw - (cw > 6 ? 1.5 : 0)), height - 1.5);
				if (cw >= 22) write(g, String(v), x + cw / 2, y + height / 2 + 4, { align: 'center', colour: inkOn(g.fillStyle) });
			});
			const total = sum(r.cells.filter(known));
			write(g, String(total), w - 4, y + height / 2 + 4, { align: 'right', weight: 650, colour: colours.ink });
		});
		const y = rows.length * height;
		if (cw >= 20) {
			columns.forEach((c, i) => {
				const x = left + (i + 0.5) * cw;
				const colour = c.state === 'error' ? colours.bad : colours.ink;
				write(g, String(sum(rows.map((r) => r.cells[i]).filter(known))), x, y + 15, { align: 'center', weight: 650,
					colour });
				if (cw >= 34) write(g, c.label, x, y + 29, { align: 'center', size: 10, colour: c.state === 'error' ? colours.bad
					: colours.ink3 });
			});
		}
		const over = (px, py) => [rows[Math.floor(py / height)], columns[Math.floor((px - left) / cw)],
			Math.floor((px - left) / cw)];
		return {
			tip: (px, py) => {
				const [r, c, i] = over(px, py);
				if (!c || px < left) return null;
				return r ? [r.name + ' at ' + c.name, known(r.cells[i]) ? r.cells[i] + ' in flight' : 'not known'] : [c.name];
			},
			go: (px, py) => (px >= left ? over(px, py)[1]?.go : null),
		};
	};
}
function clip(g, words, x, y, width, state) {
	const style = { align: 'right', colour: state === 'error' ? colours.bad : colours.ink2, weight: state === 'error'
		? 650 : 400 };
	g.font = style.weight + ' 11px ' + colours.font;
	let fits = words; // without its middle: names of one fleet begin alike
	for (let n = words.length - 1; n > 1 && g.measureText(fits).width > width; n--)
		fits = words.slice(0, Math.floor(n / 2)) + '…' + words.slice(words.length - Math.ceil(n / 2));
	write(g, fits, x, y, style);
}
function inkOn(colour) {
	const [r, g, b] = (colour.startsWith('#') ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
		: colour.match(/[\d.]+/g).map(Number));
	return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? '#101820' : '#ffffff';
}
