// What all parts of the page use: elements made from values, and values written as words. Text goes in as text.

// What the views show: the store, the route, and what they can do. See store.js and page.js.
export const S = {};
export const R = {};
export const act = {};

const drawn = new Set(['svg', 'path', 'circle', 'rect']);
const svgSpace = 'http:' + '//www.w3.org/2000/svg'; // a name, not an address

// h describes an element: its tag with its classes as tag.class, its properties if the second argument has any, its
// children. Children that are null, undefined or false are left out; lists are flattened.
export function h(name, ...kids) {
	const [tag, ...classes] = name.split('.');
	const first = kids[0];
	const own = first && typeof first === 'object' && !Array.isArray(first) && !first.kids;
	const props = own ? kids.shift() : {};
	if (classes.length) props.class = classes.join(' ') + (props.class ? ' ' + props.class : '');
	return { tag, props, kids };
}
const flat = (kids) => kids.flat(Infinity).filter((k) => k !== null && k !== undefined && k !== false);

// patch makes the children of box what kids describe, and keeps the elements that stay: those with the same key, else
// those of the same tag at the same place. Keys are unique among the children of one element.
export function patch(box, kids) {
	const keyed = new Map();
	for (const c of box.children) if (c.key !== undefined) keyed.set(c.key, c);
	let at = box.firstChild;
	for (const kid of flat(kids)) {
		if (typeof kid !== 'object') {
			const words = String(kid);
			if (at && at.nodeType === Node.TEXT_NODE) {
				if (at.data !== words) at.data = words;
				at = at.nextSibling;
			} else box.insertBefore(document.createTextNode(words), at);
			continue;
		}
		const { key } = kid.props;
		const fits = (e) => e && e.nodeType === Node.ELEMENT_NODE && e.key === key && e.localName === kid.tag;
		let e = key === undefined ? at : keyed.get(key);
		if (!fits(e)) {
			e = drawn.has(kid.tag) ? document.createElementNS(svgSpace, kid.tag) : document.createElement(kid.tag);
			e.key = key;
			e.props = {};
		}
		if (e !== at) box.insertBefore(e, at);
		else at = at.nextSibling;
		dress(e, kid.props);
		if (!kid.props.draw) patch(e, kid.kids);
	}
	while (at) {
		const next = at.nextSibling;
		at.remove();
		at = next;
	}
}

// dress sets the properties: on… are handlers, style is an object, draw and rev belong to a canvas, value is only the
// first one of a field.
function dress(e, props) {
	const had = e.props || {};
	for (const name of Object.keys(had)) if (!(name in props) && name !== 'key') set(e, name, null, had[name]);
	for (const [name, v] of Object.entries(props)) if (name !== 'key') set(e, name, v, had[name]);
	e.props = props;
}

function set(e, name, v, old) {
	if (name.startsWith('on')) e[name] = v;
	else if (name === 'draw' || name === 'rev') e[name] = v;
	else if (name === 'style') for (const [k, s] of Object.entries(v || {})) { if (!old ||
		old[k] !== s) e.style.setProperty(k, s); }
	else if (v === old) return;
	else if (name === 'value' && old === undefined) e.value = v;
	else if (name === 'open') e.open = Boolean(v);
	else if (v === null || v === undefined || v === false) e.removeAttribute(name);
	else e.setAttribute(name, v === true ? '' : String(v));
}

// Signs: a state has a shape and a word besides its colour.
const shapes = {
	good: ['circle', { cx: 6, cy: 6, r: 4.5, fill: 'currentColor' }],
	warning: ['path', { d: 'M6 .8 11.6 11H.4z', fill: 'currentColor' }],
	error: ['path', { d: 'M6 0 12 6 6 12 0 6z', fill: 'currentColor' }],
	new: ['circle', { cx: 6, cy: 6, r: 4, fill: 'none', stroke: 'currentColor', 'stroke-width': 2.4 }],
	gone: ['circle', { cx: 6, cy: 6, r: 4, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.6,
		'stroke-dasharray': '2.4 2' }],
	none: ['rect', { x: 2, y: 5, width: 8, height: 2, fill: 'currentColor' }],
	paused: ['path', { d: 'M2 1h3v10H2zM7 1h3v10H7z', fill: 'currentColor' }],
};
export function sign(kind) {
	const [tag, props] = shapes[kind] || shapes.none;
	return h('svg', { class: 'sign ' + kind, viewBox: '0 0 12 12', 'aria-hidden': 'true' }, h(tag, props));
}

// Formats. A value that is not known is a dash, and a non-zero value never prints as 0.
export const dash = '–';
export const known = (v) => typeof v === 'number' && Number.isFinite(v);
const nb = '\u00a0';
export const num = (v, digits = 0) => (known(v)
	? v.toLocaleString('en-GB', { minimumFractionDigits: digits, maximumFractionDigits: digits }) : dash);
export const rate = (v) => num(v, known(v) && v < 20 ? 1 : 0);
export function secs(v) {
	if (!known(v)) return dash;
	if (v > 0 && v < 0.0005) return '<' + nb + '1' + nb + 'ms';
	if (v < 0.0995) return (1000 * v).toFixed(0) + nb + 'ms';
	if (v < 9.95) return v.toFixed(2) + nb + 's';
	if (v < 60) return v.toFixed(1) + nb + 's';
	return lasts(v);
}
// lasts is a time that goes on: whole seconds, and not more than two units.
export function lasts(v) {
	if (!known(v)) return dash;
	const s = Math.max(0, Math.floor(v));
	if (s < 60) return s + nb + 's';
	if (s < 3600) return Math.floor(s / 60) + nb + 'min' + (s % 60 ? nb + (s % 60) + nb + 's' : '');
	if (s < 172800) return Math.floor(s / 3600) + nb + 'h' + nb + Math.floor((s % 3600) / 60) + nb + 'min';
	return Math.floor(s / 86400) + nb + 'd';
}
const since = (v) => (!known(v) ? 'never' : v < 1 ? (1000 * v).toFixed(0) + nb + 'ms ago' : v < 10
	? v.toFixed(1) + nb + 's ago' : v < 100 ? Math.floor(v) + nb + 's ago' : v < 5400 ? Math.round(v / 60) + nb +
		'min ago'
		: lasts(v) + ' ago');
export const ago = (v) => since(known(v) ? Math.max(0, v) : v); // clocks of two answers may differ by milliseconds
export function pct(v, digits = 1) {
	if (!known(v)) return dash;
	const least = 10 ** -digits;
	if (v > 0 && 100 * v < least / 2) return '<' + nb + least.toFixed(digits) + nb + '%';
	return (Math.round(v * 10 ** (digits + 2)) / 10 ** digits).toFixed(digits) + nb + '%'; // as in sentences of the API
}
export const seconds = (t) => (t ? Date.parse(t) / 1000 : NaN); // of a time of the API
export const clock = (t) => (known(t) ? new Date(1000 * t).toISOString().slice(11, 19) : dash);
export const minute = (t) => clock(t).slice(0, 5);
export const plural = (n, word) => num(n) + ' ' + word + (n === 1 ? '' : 's');
const hostOf = (address) => address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
// labels returns a function for what distinguishes an address from the others: its port, if they are on one host, else
// the end of the host.
export function labels(addresses) {
	const hosts = new Set(addresses.map(hostOf));
	return hosts.size < addresses.length ? (a) => (hosts.size === 1 ? '' : short(a)) + a.slice(hostOf(a).length) : short;
}
export function short(address) {
	const host = hostOf(address);
	const parts = host.split('.');
	return parts.length === 4 && parts.every((p) => /^\d+$/.test(p)) ? parts.slice(2).join('.') : host;
}
// place is an address without the beginning of its host. Servers of one host differ in their ports only.
export const place = (address) => short(address) + address.slice(hostOf(address).length);
export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const quantile = (sorted, p) => sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))];
