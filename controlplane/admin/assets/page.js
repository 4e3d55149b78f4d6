// Keeps the page live: polls the JSON and fills the elements that the server
// has rendered, or copies of its templates. Text goes in as text, never as HTML.
'use strict';
(() => {
  const rows = Number(document.body.dataset.limit); // 0: all
  const points = document.body.dataset.points;
  const span = document.body.dataset.window;
  const pollEvery = rows ? 2000 : 5000; // milliseconds
  const maxWrong = 30;
  const none = '–';
  const byId = (id) => document.getElementById(id);
  let now = new Date(); // the server's clock, as of the latest poll

  // Formats: the same as in format.go, under the same names.
  const fixed = (digits) => (v) => (v === null ? none : v.toFixed(digits));
  const seconds = (v) => {
    if (v < 0.0995) return (1000 * v).toFixed(1) + ' ms';
    if (v < 0.9995) return (1000 * v).toFixed(0) + ' ms';
    if (v < 60) return v.toFixed(1) + ' s';
    if (v < 2 * 3600) return (v / 60).toFixed(0) + ' min';
    if (v < 48 * 3600) return (v / 3600).toFixed(0) + ' h';
    return (v / 86400).toFixed(0) + ' d';
  };
  const formats = {
    text: (v) => (v === null || v === '' ? none : String(v)),
    plain: (v) => (v === null ? '' : String(v)),
    int: fixed(0),
    num1: fixed(1),
    num2: fixed(2),
    pct2: (v) => (v === null ? none : (100 * v).toFixed(2)),
    pct: (v) => (v === null ? none : (100 * v).toFixed(1)),
    secs: (v) => (v === null ? none : seconds(v)),
    ago: (v) => {
      if (v === null) return 'never';
      const past = (now - new Date(v)) / 1000;
      return past < 1 ? '< 1 s ago' : seconds(past) + ' ago';
    },
    yes: (v) => (v ? 'yes' : 'no'),
    ready: (v) => (v ? 'ready' : 'not ready'),
    flag: (v) => (v ? 'overloaded' : ''),
    reporting: (v) => {
      if (v === null || v.expected === null) return '';
      const words = (v.reporting || 0) + ' of ' + v.expected + (v.idle ? ', ' + v.idle + ' idle' : '');
      const named = v.missing.length;
      if (!named) return words;
      const more = v.expected - (v.reporting || 0) - (v.idle || 0) - named;
      return words + ', without ' + v.missing.join(', ') + (more > 0 ? ' and ' + more + ' more' : '');
    },
    follows: (v) => {
      if (v === null || !v.subscribed) return none;
      if (v.nack) return 'refuses';
      return v.in_sync ? 'yes' : 'not yet';
    },
    problems: (v) => (v || []).map((p) => p.message).join('; '),
  };

  const worst = (problems) => ['error', 'warning'].find((s) => problems.some((p) => p.severity === s)) || '';

  // get follows a path such as "inputs.queue.value"; in a list, a step is the
  // item whose field has that name.
  function get(item, path) {
    let at = item;
    for (const step of path.split('.')) {
      if (at === null || at === undefined) return null;
      at = Array.isArray(at) ? at.find((x) => x.field === step) : at[step];
    }
    return at === undefined ? null : at;
  }

  // own are the marked elements of a keyed element that are not of a keyed
  // element inside it.
  const owned = new WeakMap();
  function own(keyed) {
    if (!owned.has(keyed)) {
      const marked = [keyed, ...keyed.querySelectorAll('[data-f],[data-v-f],[data-title-f],[data-href-f]')];
      owned.set(keyed, marked.filter((e) => e.closest('[data-key]') === keyed));
    }
    return owned.get(keyed);
  }

  function fill(keyed, item) {
    for (const e of own(keyed)) {
      const { f, fmt, vF, titleF, hrefF } = e.dataset;
      if (f) {
        const words = formats[fmt || 'text'](get(item, f));
        if (e.textContent !== words) e.textContent = words;
      }
      if (vF) {
        const v = get(item, vF);
        const mark = Array.isArray(v) ? worst(v) : String(v === null ? '' : v);
        if (e.dataset.v !== mark) e.dataset.v = mark;
      }
      if (titleF) e.title = get(item, titleF) || '';
      if (hrefF) e.setAttribute('href', '#' + encodeURIComponent(get(item, hrefF)));
    }
  }

  // list makes the children of box those of items, keeping the elements whose
  // key stays.
  function list(box, template, items, keyOf) {
    const old = new Map([...box.children].map((e) => [e.dataset.key, e]));
    items.forEach((item, i) => {
      const key = keyOf(item);
      let e = old.get(key);
      old.delete(key);
      if (!e) {
        e = byId(template).content.firstElementChild.cloneNode(true);
        e.dataset.key = key;
      }
      fill(e, item);
      if (box.children[i] !== e) box.insertBefore(e, box.children[i] || null);
    });
    old.forEach((e) => e.remove());
    while (box.children.length > items.length) box.lastElementChild.remove();
    return [...box.children];
  }

  const anchor = (name) => 'cluster-' + name;

  // Lines: the same as in format.go.
  const sparkY = (share, top) => (top <= 0 ? 19 : 1 + 18 * (1 - Math.min(1, share / top)));
  function spark(shares, top) {
    let path = '';
    let pen = 'M';
    shares.forEach((v, i) => {
      if (v === null) {
        pen = 'M';
        return;
      }
      const x = shares.length > 1 ? (120 * i) / (shares.length - 1) : 120;
      path += pen + x.toFixed(1) + ' ' + sparkY(v, top).toFixed(1);
      pen = 'L';
    });
    return path;
  }

  function drawShares(elements, cluster, history) {
    const even = 1 / cluster.endpoint_counts.total;
    const traces = new Map(history.endpoints.map((t) => [t.address, t.shares]));
    let top = 2 * even;
    for (const shares of traces.values()) for (const v of shares) if (v > top) top = v;
    cluster.endpoints.forEach((endpoint, i) => {
      const svg = elements[i].querySelector('.spark');
      svg.querySelector('path').setAttribute('d', spark(traces.get(endpoint.address) || [], top));
      const line = svg.querySelector('.even');
      line.setAttribute('y1', sparkY(even, top));
      line.setAttribute('y2', sparkY(even, top));
    });
  }

  // json asks the API; null is what is not there.
  async function json(path) {
    const answer = await fetch('api/v1/' + path, { signal: AbortSignal.timeout(10000), cache: 'no-store' });
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(answer.status + ' for ' + path);
    return answer.json();
  }

  // detail returns one cluster with the rows to show and their history; null
  // when it was removed since it was listed.
  async function detail(name) {
    const base = 'clusters/' + encodeURIComponent(name);
    const cluster = await json(base + '?sort=worst&limit=' + rows);
    if (!cluster) return null;
    const query = new URLSearchParams({ window: span, points });
    if (rows) cluster.endpoints.forEach((e) => query.append('endpoint', e.address));
    const history = await json(base + '/history?' + query);
    return history && { ...cluster, history };
  }

  function showRest(e, shown, total) {
    e.hidden = shown >= total;
    if (e.hidden) return;
    e.firstChild.textContent = shown + ' of ';
    e.querySelector('b').textContent = total;
  }

  function showClusters(clusters) {
    list(byId('clusters'), 'new-cluster', clusters, (c) => c.name).forEach((section, i) => {
      const cluster = clusters[i];
      section.id = anchor(cluster.name);
      list(section.querySelector('[data-list=sources]'), 'new-source', cluster.sources, (s) => s.name);
      const box = section.querySelector('[data-list=endpoints]');
      const elements = list(box, 'new-endpoint', cluster.endpoints, (e) => e.address);
      drawShares(elements, cluster, cluster.history);
      showRest(section.querySelector('.rest'), cluster.endpoints.length, cluster.endpoint_counts.total);
    });
  }

  function showClients(clients, total) {
    const flat = clients.flatMap((client) => {
      const subs = client.subscriptions.length ? client.subscriptions : [null];
      return subs.map((sub) => ({ client, sub }));
    });
    const key = ({ client, sub }) => [client.node_id, client.address, sub ? sub.resource : ''].join(' ');
    list(byId('clients'), 'new-client', flat, key);
    list(byId('signals'), 'new-signal', clients, (client) => 'signals of ' + client.node_id + ' ' + client.address);
    byId('client-count').textContent = total;
    showRest(byId('client-rest'), clients.length, total);
  }

  function showWrong(status, clusters, clients) {
    const from = (where, href, item) => item.problems.map((p) => ({ where, href, ...p }));
    const all = [
      ...from('steelyard', 'status', status),
      ...clusters.flatMap((c) => from(c.name, anchor(c.name), c)),
      ...clients.flatMap((c) => from('Envoy ' + c.node_id, 'envoys', c)),
    ];
    const sorted = [...all.filter((p) => p.severity === 'error'), ...all.filter((p) => p.severity !== 'error')];
    list(byId('wrong'), 'new-wrong', sorted.slice(0, maxWrong), (p) => p.where + ': ' + p.message);
    byId('all-well').hidden = all.length > 0;
    byId('more-wrong').hidden = all.length <= maxWrong;
    byId('more-wrong').querySelector('b').textContent = Math.max(0, all.length - maxWrong);
    const errors = all.filter((p) => p.severity === 'error').length;
    document.title = (errors ? '(' + errors + ') ' : '') + 'Steelyard';
  }

  async function poll() {
    const [status, heads, clients] = await Promise.all([
      json('status'), json('clusters'), json('clients?sort=worst&limit=' + rows),
    ]);
    const clusters = (await Promise.all(heads.clusters.map((c) => detail(c.name)))).filter(Boolean);
    now = new Date(status.now);
    fill(byId('status'), status);
    showWrong(status, clusters, clients.clients);
    showClusters(clusters);
    showClients(clients.clients, clients.total);
  }

  function showLive(error) {
    const live = byId('live');
    if (!error) live.dataset.since = now.toISOString().slice(11, 19) + ' UTC';
    live.className = error ? 'dead' : '';
    document.body.classList.toggle('dead', Boolean(error));
    live.textContent = error
      ? 'no answer (' + error.message + '): this is the state of ' + (live.dataset.since || 'the loading of this page')
      : 'live, ' + live.dataset.since;
  }

  async function run() {
    for (;;) {
      if (!document.hidden) await poll().then(() => showLive(null), showLive);
      await new Promise((resolve) => setTimeout(resolve, pollEvery));
    }
  }
  run();
})();
