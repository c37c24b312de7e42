// Copyright (c) 2026, natsops maintainers. SPDX-License-Identifier: GPL-3.0-or-later
"use strict";
(async () => {
  const unpacking = new DecompressionStream("gzip");
  const writer = unpacking.writable.getWriter();
  writer.write(Uint8Array.from(atob(document.getElementById("data").textContent), (character) => character.charCodeAt(0)));
  writer.close();
  const data = await new Response(unpacking.readable).json();
  const PAGE = 25;
  const MORE = 500;
  const COLORS = 8;
  const CLUSTERS = 8;
  const DAY = 86400000;
  const SVG = "http://www.w3.org/2000/svg";

  // --- building: names are reported by others, so that they are only ever text -------------------------------------------------
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined) continue;
      if (typeof value === "function") node.addEventListener(name, value);
      else node.setAttribute(name, value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
    }
    return node;
  }
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // --- values ------------------------------------------------------------------------------------------------------------------
  const scale = (value, steps) => {
    const [unit, factor] = steps.find(([, step]) => Math.abs(value) >= step) || steps[steps.length - 1];
    const scaled = value / factor;
    return `${Math.abs(scaled) >= 100 || Number.isInteger(scaled) ? Math.round(scaled) : scaled.toPrecision(3)} ${unit}`;
  };
  const BYTES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
  const SECONDS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 0.001]];
  const round = (value) => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))).toLocaleString("en");
  const moment = (text) => String(text).replace("T", " ").replace(/(\.\d+)?Z$/, "");
  const FORMAT = {
    text: String, severity: String, time: moment,
    list: (value) => value.join(", "),
    count: (value) => Math.round(value).toLocaleString("en"),
    number: round,
    amount: round,
    bytes: (value) => scale(value, BYTES),
    seconds: (value) => (value === 0 ? "0 s" : scale(value, SECONDS)),
    percent: (value) => `${(100 * value).toFixed(Math.abs(value) > 0.99 && value < 1 ? 3 : 1)} %`,
    flag: (value) => (value ? "yes" : "no"),
  };
  const NUMBERS = new Set(["count", "number", "amount", "bytes", "seconds", "percent"]);
  // One collator, since each call of localeCompare makes its own.
  const COLLATE = new Intl.Collator("en", { numeric: true }).compare;
  const show = (value, kind) => (value === null || value === undefined ? "–" : (FORMAT[kind] || String)(value));
  // What stands between backticks, as in remedies, is code; a single backtick stays one.
  const coded = (text) => text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? el("code", null, part) : part));
  // A command that can be copied, without the comment behind it: an interactive shell may not know comments.
  function command(line) {
    const [, plain, comment] = line.match(/^(.*?)(\s{2,}#\s.*)?$/s);
    const code = el("code", null, plain);
    const button = el("button", { type: "button", "aria-label": `copy ${plain}`, click: async () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      let copied = false;
      try { await navigator.clipboard.writeText(plain); copied = true; } catch { copied = document.execCommand("copy"); }
      button.textContent = copied ? "copied" : "selected";
    } }, "copy");
    return el("div", { class: "command" }, el("pre", null, code, comment ? el("span", { class: "soft" }, comment) : null), button);
  }
  const SEVERITIES = ["critical", "warning", "info"];
  const rank = (value, kind) => (kind === "severity" ? SEVERITIES.indexOf(value) : value);

  const fleets = [...new Set(Object.values(data.tables).flatMap((table) => {
    const at = table.columns.findIndex(([name]) => name === "fleet");
    return at < 0 ? [] : table.rows.map((row) => row[at]);
  }))].sort();
  let fleet = null; // all

  function objects(name) {
    const table = data.tables[name];
    if (!table) return [];
    const keys = table.columns.map(([key]) => key);
    const made = [];
    for (const row of table.rows) {
      const object = {};
      for (let index = 0; index < keys.length; index += 1) object[keys[index]] = row[index];
      if (fleet === null || object.fleet === fleet) made.push(object);
    }
    return made;
  }

  // --- tables: sorted by their heads, filtered by text ---------------------------------------------------------------------------
  // Columns that only programs read.
  const HIDDEN = new Set(["shell", "hygiene", "began_before", "unavailable", "degraded"]);
  // Columns of the root causes that the cause and its impact name.
  const NAMED = new Set(["kind", "servers", "evidence"]);
  // Names that are never broken into lines.
  const WHOLE = new Set(["fleet", "domain", "cluster", "server", "check", "zone", "version", "leader", "meta_leader"]);
  // `whole`: whether `only` selects all rows of a page, rather than those of one asset.
  function tableOf(name, only, whole = !only, id = name) {
    const table = data.tables[name];
    const at = Object.fromEntries(table.columns.map(([key], index) => [key, index]));
    const mine = table.rows.filter((row) => (fleet === null || at.fleet === undefined || row[at.fleet] === fleet) && (!only || only(row, at)));
    const reported = (value) => value !== null && value !== "" && !(Array.isArray(value) && !value.length);
    const columns = table.columns.map(([key, title, kind], index) => ({ key, title, kind, index }))
      .filter((column) => !HIDDEN.has(column.key) && !(name === "causes" && NAMED.has(column.key)) && (column.key !== "fleet" || fleets.length > 1) && mine.some((row) => reported(row[column.index])));
    const state = { sort: null, down: false, text: "", severity: null, most: PAGE };
    const body = el("tbody");
    const count = el("span", { class: "count", role: "status" });
    const more = el("button", { type: "button", click: () => { state.most += MORE; draw(); } }, "more rows");

    const written = new Map();
    const asText = (row) => {
      if (!written.has(row)) written.set(row, columns.map(({ index, kind }) => show(row[index], kind)).join("\n").toLowerCase());
      return written.get(row);
    };
    function draw() {
      const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
      let rows = mine.filter((row) => words.every((word) => asText(row).includes(word)));
      if (state.severity) {
        rows = rows.filter((row) => row[at.severity] === state.severity);
      }
      if (state.sort) {
        const { index, kind } = state.sort;
        const sign = state.down ? -1 : 1;
        rows = rows.map((row, order) => [row, order]).sort(([one, first], [other, second]) => {
          const [a, b] = [rank(one[index], kind), rank(other[index], kind)];
          if (a === null || b === null) return (a === null) - (b === null) || first - second;
          return sign * (typeof a === "number" ? a - b : COLLATE(String(a), String(b))) || first - second;
        }).map(([row]) => row);
      }
      body.replaceChildren(...rows.slice(0, state.most).map((row) => el("tr", null, columns.map((column) => cell(row, column)))));
      const left = whole ? table.total - table.rows.length : 0;
      count.textContent = `${rows.length.toLocaleString("en")} of ${mine.length.toLocaleString("en")} rows`
        + (left > 0 ? `; ${left.toLocaleString("en")} more are in ${table.beyond}` : "");
      more.hidden = rows.length <= state.most;
    }
    function cell(row, { key, kind, index }) {
      const value = row[index];
      if (value !== null && kind === "severity") {
        return el("td", null, el("span", { class: `badge ${SEVERITIES.includes(value) ? value : ""}` }, value));
      }
      const asset = (...of) => el("button", { type: "button", class: "link", click: () => showAsset(of) }, value);
      if (key === "stream" && value && whole && at.account !== undefined) {
        return el("td", null, asset("stream", row[at.fleet], row[at.domain], row[at.account], value));
      }
      if (["server", "leader", "meta_leader"].includes(key) && value && whole) {
        return el("td", { class: "k" }, asset("server", row[at.fleet], value));
      }
      if (key === "new") return el("td", null, value ? el("span", { class: "badge new" }, "new") : "");
      const scaled = kind === "amount" && ["file", "memory"].includes(row[at.resource]) ? "bytes" : kind;
      const wide = ["text", "causes", "old", "title", "impact", "evidence", "commands"].includes(key);
      if (key === "title" && at.evidence !== undefined) return el("td", { class: "w" }, value, (row[at.evidence] || []).map((line) => el("div", { class: "soft" }, line)));
      if (key === "commands" && row[at.shell]) return el("td", { class: "w" }, (value || []).map(command));
      return el("td", { class: NUMBERS.has(kind) ? "n" : kind === "time" ? "t" : wide ? "w" : WHOLE.has(key) && show(value, kind).length < 40 ? "k" : null },
        ["commands", "remedy"].includes(key) ? coded(show(value, scaled)) : show(value, scaled));
    }
    const heads = columns.map((column) => {
      const head = el("th", { scope: "col", class: NUMBERS.has(column.kind) ? "n" : null, "aria-sort": "none" },
        el("button", { type: "button", click: () => {
          state.down = state.sort === column ? !state.down : NUMBERS.has(column.kind);
          state.sort = column;
          for (const other of heads) other.setAttribute("aria-sort", "none");
          head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
          draw();
        } }, column.title));
      return head;
    });
    const filter = el("input", { type: "search", placeholder: "filter", "aria-label": `filter ${table.title}`, "data-table": id,
      input: (event) => { state.text = event.target.value; state.most = PAGE; draw(); } });
    const chips = name !== "findings" ? [] : SEVERITIES.map((severity) => {
      const chip = el("button", { type: "button", "aria-pressed": "false", click: () => {
        state.severity = state.severity === severity ? null : severity;
        for (const other of chips) other.setAttribute("aria-pressed", String(other === chip && state.severity !== null));
        draw();
      } }, severity);
      return chip;
    });
    draw();
    return el("div", { "data-rows": id }, el("div", { class: "controls" }, filter, chips, count),
      el("div", { class: "scroll" }, el("table", null, el("thead", null, el("tr", null, heads)), body)), more);
  }

  // All rows of one asset: of ["stream", fleet, domain, account, stream], or ["server", fleet, server]. A table that has no column
  // for the fleet or the domain is of a single one.
  function showAsset([kind, of, ...names]) {
    const is = (row, at, key, value) => value === null || value === undefined || at[key] === undefined || row[at[key]] === value;
    const [domain, account, stream] = names;
    const ofStream = (row, at) => is(row, at, "domain", domain) && (at.stream === undefined
      ? row[at.scope] === "stream" && row[at.name] === `${account}/${stream}` : row[at.account] === account && row[at.stream] === stream);
    const [server] = names;
    const ofServer = (row, at) => ["server", "leader", "peer", "meta_leader"].some((key) => row[at[key]] === server)
      || ["servers", "missing", "behind"].some((key) => Array.isArray(row[at[key]]) && row[at[key]].includes(server))
      || (row[at.scope] === "server" && row[at.name] === server);
    const same = (row, at) => is(row, at, "fleet", of) && (kind === "stream" ? ofStream : ofServer)(row, at);
    const parts = Object.entries(data.tables).map(([name, table]) => {
      const at = Object.fromEntries(table.columns.map(([key], index) => [key, index]));
      return table.shown !== false && table.rows.some((row) => same(row, at)) || name === "timeline" && table.rows.some((row) => same(row, at))
        ? [el("h3", null, table.title), tableOf(name, same)] : null;
    });
    const title = kind === "stream" ? `${account} / ${stream}` : server;
    document.querySelectorAll("dialog").forEach((other) => other.remove());
    const dialog = el("dialog", { "aria-label": `${kind} ${title}`, close: () => { dialog.remove(); history.replaceState(null, "", "#"); } },
      el("form", { method: "dialog", class: "controls" }, el("h2", null, title), el("button", null, "close")),
      parts.some(Boolean) ? parts.flat() : el("p", null, `The report has no row of this ${kind}.`));
    document.body.append(dialog);
    dialog.showModal();
    // The address leads to the asset again.
    history.replaceState(null, "", `#${[kind, of, ...names].map((part) => encodeURIComponent(part ?? "")).join("/")}`);
  }

  // --- charts -----------------------------------------------------------------------------------------------------------------------
  const color = (index) => `var(--s${(index % COLORS) + 1})`;
  function figure(caption, drawing, key) {
    return el("figure", null, el("figcaption", null, caption), drawing,
      key && key.length ? el("div", { class: "key" }, key.map(([name, paint]) => el("span", null, el("i", { style: `background:${paint}` }), name))) : null);
  }
  const canvas = (width, height, label, ...children) =>
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);
  const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  function bars(rows, { caption, kind, mark, markName, left = 190 }) {
    const [width, height, top] = [1180, 24, 8];
    const most = Math.max(...rows.map((row) => row.parts.reduce((sum, part) => sum + part.value, 0)), mark || 0, 1e-9);
    const x = (value) => left + (value / most) * (width - left - 110);
    const total = top + rows.length * height + (mark ? 18 : 4);
    const drawn = rows.map((row, index) => {
      const y = top + index * height;
      let from = 0;
      const parts = row.parts.map((part) => {
        const begin = x(from);
        from += part.value;
        return svg("rect", { x: begin, y: y + 3, width: Math.max(x(from) - begin, part.value > 0 ? 1 : 0), height: height - 8, rx: 2, fill: part.paint },
          svg("title", null, `${row.name}: ${part.name} ${show(part.value, kind)}`));
      });
      return svg("g", null, svg("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, cut(row.name, Math.floor(left / 7)), svg("title", null, row.name)),
        parts, svg("text", { x: x(from) + 6, y: y + 15, class: "soft" }, show(from, kind)));
    });
    const line = mark ? svg("g", null,
      svg("line", { x1: x(mark), x2: x(mark), y1: top - 4, y2: total - 14, stroke: "var(--text)", "stroke-dasharray": "4 3" }),
      svg("text", { x: x(mark), y: total - 2, "text-anchor": "middle", class: "soft" }, `${markName} ${show(mark, kind)}`)) : null;
    return canvas(width, total, caption, drawn, line);
  }

  function findingsChart() {
    const rows = objects("checks").filter((row) => row.failed + row.unknown > 0);
    if (!rows.length) return null;
    const sums = new Map();
    for (const row of rows) {
      const sum = sums.get(row.check) || { name: `${row.check} ${row.title}`, severity: row.severity, failed: 0, unknown: 0 };
      sum.failed = Math.max(sum.failed, row.failed);
      sum.unknown = Math.max(sum.unknown, row.unknown);
      sums.set(row.check, sum);
    }
    const worst = [...sums.values()].filter((row) => row.failed > 0)
      .sort((one, other) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) || other.failed - one.failed).slice(0, 24);
    if (!worst.length) return null;
    const caption = "Findings of each check, the worst first (most in one snapshot)";
    return figure(caption, bars(worst.map((row) => ({ name: row.name, parts: [{ name: row.severity, value: row.failed, paint: `var(--${row.severity})` }] })),
      { caption, kind: "count", left: 420 }), SEVERITIES.map((severity) => [severity, `var(--${severity})`]));
  }

  function trendChart() {
    const rows = objects("trend");
    const days = [...new Set(rows.map((row) => row.day))].sort();
    if (days.length < 2) return null;
    const sum = (day, severity) => rows.filter((row) => row.day === day).reduce((total, row) => total + (row[severity] || 0), 0);
    const most = Math.max(...days.map((day) => SEVERITIES.reduce((total, severity) => total + sum(day, severity), 0)), 1);
    const [width, height, left, bottom] = [1180, 170, 50, 26];
    const step = (width - left) / Math.max(days.length, 7);
    const y = (value) => height - bottom - (value / most) * (height - bottom - 18);
    const drawn = days.map((day, index) => {
      let from = 0;
      const x = left + index * step + 4;
      const parts = SEVERITIES.map((severity) => {
        const value = sum(day, severity);
        from += value;
        return value ? svg("rect", { x, y: y(from), width: Math.min(step - 8, 60), height: Math.max(y(from - value) - y(from), 1), fill: `var(--${severity})` },
          svg("title", null, `${day}: ${value} ${severity}`)) : null;
      });
      return svg("g", null, parts, svg("text", { x, y: y(from) - 4, class: "soft" }, show(from, "count")), svg("text", { x, y: height - 8, class: "soft" }, day.slice(5)));
    });
    const caption = "Failed checks in the last snapshot of each day";
    return figure(caption, canvas(width, height, caption, svg("line", { x1: left, x2: width, y1: y(0), y2: y(0), class: "axis" }), drawn),
      SEVERITIES.map((severity) => [severity, `var(--${severity})`]));
  }

  // The domain is there only where there are several.
  const place = (row) => [row.cluster, row.domain && `(${row.domain})`].filter(Boolean).join(" ");
  const MEASURES = [["stream_leaders", "count", "streams led"], ["consumer_leaders", "count", "consumers led"], ["replicas", "count", "replicas"],
    ["bytes", "bytes", "bytes stored"], ["led_bytes", "bytes", "bytes led"], ["write_msgs", "number", "messages/s written"], ["write_bytes", "bytes", "bytes/s written"]];
  function balanceChart() {
    const rows = objects("load");
    if (!rows.length) return null;
    const [holder, note] = [el("div"), el("span", { class: "count" })];
    const select = el("select", { "aria-label": "measure", change: () => draw() }, MEASURES.map(([key, , title]) => el("option", { value: key }, title)));
    function draw() {
      const [key, kind, title] = MEASURES.find(([name]) => name === select.value);
      const found = [...Map.groupBy(rows, place)].map(([cluster, of]) => ({ cluster, of, mean: of.reduce((sum, row) => sum + (row[key] || 0), 0) / of.length }));
      const uneven = ({ of, mean }) => (mean ? Math.max(...of.map((row) => row[key] || 0)) / mean : 0);
      const clusters = found.sort((one, other) => uneven(other) - uneven(one)).slice(0, CLUSTERS);
      const more = found.length - clusters.length;
      note.textContent = more ? `The ${CLUSTERS} most uneven of ${found.length} clusters.` : "";
      holder.replaceChildren(...clusters.map(({ cluster, of, mean }) => {
        const mine = of.toSorted((one, other) => (other[key] || 0) - (one[key] || 0)).slice(0, 60);
        const zones = [...new Set(mine.map((row) => row.zone || "no zone"))].sort();
        const caption = `${title} in ${cluster}`;
        return figure(caption, bars(mine.map((row) => ({ name: row.server,
          parts: [{ name: title, value: row[key] || 0, paint: color(zones.indexOf(row.zone || "no zone")) }] })),
        { caption, kind, mark: mean, markName: "mean" }), zones.length > 1 ? zones.map((zone, index) => [zone, color(index)]) : []);
      }));
    }
    draw();
    return el("div", null, el("div", { class: "controls" }, select, note), holder);
  }

  const ACTIVITY = [["in_msgs", "number", "messages/s received"], ["in_bytes", "bytes", "bytes/s received"], ["num_pending", "count", "messages pending"],
    ["num_ack_pending", "count", "messages not acknowledged"], ["elections", "count", "elections an hour"], ["api_requests", "number", "API requests/s"],
    ["api_errors", "count", "API errors an hour"], ["connections", "count", "clients"]];
  // A canvas knows no variables of the style sheet.
  const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function activityChart() {
    const rows = objects("activity").map((row) => ({ ...row, at: Date.parse(`${row.day}T00:00:00Z`) / 1000 + row.hour * 3600 }));
    // More lines than colors nobody could tell apart.
    const several = [...new Set(rows.map((row) => row.fleet))].sort();
    const names = several.slice(0, COLORS);
    // Every hour, so that one without a snapshot is a gap.
    const [begin, end] = [Math.min(...rows.map((row) => row.at)), Math.max(...rows.map((row) => row.at))];
    const hours = Array.from({ length: rows.length ? (end - begin) / 3600 + 1 : 0 }, (_, index) => begin + index * 3600);
    const known = new Map(rows.map((row) => [`${row.at} ${row.fleet}`, row]));
    const drawn = ACTIVITY.filter(([key]) => rows.some((row) => row[key] !== null)).map(([key, kind, title]) => {
      const lines = names.map((name) => hours.map((at) => (known.get(`${at} ${name}`) || { [key]: null })[key]));
      const values = lines.flat().filter((value) => value !== null);
      const last = lines.map((line) => line.findLast((value) => value !== null)).filter((value) => value !== undefined);
      const caption = `${title}: ${last.map((value) => show(value, kind)).join(", ")}; at most ${show(Math.max(...values), kind)}`;
      const axis = { stroke: paint("--soft"), grid: { stroke: paint("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
      const holder = el("div", { class: "plot", role: "img", "aria-label": caption });
      new uPlot({ width: 376, height: 150, legend: { show: false }, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"), cursor: { sync: { key: "activity" }, y: false },
        // A single hour is a point in the middle.
        scales: { x: { range: (_plot, least, most) => (least === most ? [least - 3600, most + 3600] : [least, most]) }, y: { range: (_plot, _least, most) => [0, most * 1.05 || 1] } },
        axes: [axis, { ...axis, size: 62, values: (_plot, ticks) => ticks.map((value) => show(value, kind)) }],
        series: [{}, ...names.map((name, index) => ({ label: name, stroke: paint(`--s${(index % COLORS) + 1}`), width: 1.5, points: { size: 4 } }))],
      }, [hours, ...lines], holder);
      return figure(caption, holder, names.length > 1 ? names.map((name, index) => [name, color(index)]) : []);
    });
    if (!drawn.length) return null;
    const note = several.length > names.length ? el("p", { class: "about" }, `${names.length} of ${several.length} fleets; choose another one above.`) : null;
    return el("div", null, note, el("div", { class: "plots" }, drawn));
  }

  function growthChart() {
    const points = objects("usage").filter((row) => row.used !== null);
    if (!points.length) return null;
    const [assets, begins] = [new Map(), new Map()];
    for (const row of points) {
      const key = [fleets.length > 1 ? row.fleet : "", row.domain, row.scope, row.name].filter(Boolean).join(" ");
      if (!assets.has(key)) assets.set(key, { fleet: row.fleet, domain: row.domain, scope: row.scope, name: row.name, points: [] });
      if (!begins.has(row.day)) begins.set(row.day, Date.parse(`${row.day}T00:00:00Z`));
      assets.get(key).points.push([begins.get(row.day) + (row.hour + 1) * 3600000, row.used, row.limit]);
    }
    const named = (row) => JSON.stringify([row.fleet, row.domain, row.scope, row.name]);
    const forecasts = new Map(objects("capacity").filter((row) => row.resource === "file").map((row) => [named(row), row]));
    const soon = (asset) => (forecasts.get(named(asset)) || {}).full_p10 ?? Infinity;
    const SCOPES = ["cluster", "zone", "server"];
    const ranked = [...assets].map(([key, asset]) => ({ key, scope: SCOPES.indexOf(asset.scope), soon: soon(asset) }));
    const keys = ranked.sort((one, other) => one.scope - other.scope || (one.soon === other.soon ? COLLATE(one.key, other.key) : one.soon - other.soon))
      .map(({ key }) => key);
    const holder = el("div");
    const select = el("select", { "aria-label": "asset", change: () => draw() }, keys.map((key) => el("option", { value: key }, key)));
    function draw() {
      const asset = assets.get(select.value);
      const mine = asset.points.sort((one, other) => one[0] - other[0]);
      const [begin, now, used] = [mine[0][0], mine[mine.length - 1][0], mine[mine.length - 1][1]];
      const limit = mine[mine.length - 1][2];
      const capacity = forecasts.get(named(asset));
      const forecast = capacity && capacity.slope !== null ? capacity : null;
      const ahead = forecast ? 30 : 0;
      const end = now + Math.max(ahead * DAY, 1);
      const edge = (name) => [7, 30].map((days) => [now + days * DAY, Math.max(used + forecast[`change_${days}_${name}`], 0)]);
      const highest = Math.max(...mine.map((point) => point[1]), ...(forecast ? edge("p90").map((point) => point[1]) : [0]));
      const near = limit && highest > limit / 4;
      const top = Math.max(near ? limit : 0, highest) * 1.08 || 1;
      const [width, height, left, bottom] = [1180, 320, 80, 28];
      const x = (at) => left + ((at - begin) / Math.max(end - begin, 1)) * (width - left - 20);
      const y = (value) => height - bottom - (value / top) * (height - bottom - 12);
      const path = (list) => list.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("g", null,
        svg("line", { x1: left, x2: width - 20, y1: y(part * top / 1.08), y2: y(part * top / 1.08), class: "axis" }),
        svg("text", { x: left - 6, y: y(part * top / 1.08) + 4, "text-anchor": "end", class: "soft" }, show(part * top / 1.08, "bytes"))));
      const step = Math.max(1, Math.ceil((end - begin) / DAY / 10)) * DAY;
      const days = [];
      for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
        days.push(svg("text", { x: x(at), y: height - 8, "text-anchor": "middle", class: "soft" }, new Date(at).toISOString().slice(5, 10)));
      }
      const fan = forecast ? [
        svg("path", { d: `${path([[now, used], ...edge("p90"), ...edge("p10").reverse()])}Z`, fill: "var(--band)", class: "band" },
          svg("title", null, "forecast between p10 and p90")),
        svg("path", { d: path([[now, used], [end, Math.max(used + forecast.slope * ahead, 0)]]), fill: "none", stroke: "var(--accent)", "stroke-dasharray": "5 4", "stroke-width": 2 })] : [];
      const full = limit && near ? [svg("line", { x1: left, x2: width - 20, y1: y(limit), y2: y(limit), stroke: "var(--critical)", "stroke-width": 1.5 }),
        svg("text", { x: width - 24, y: y(limit) - 5, "text-anchor": "end", style: "fill:var(--critical)" }, `limit ${show(limit, "bytes")}`)] : [];
      const caption = `Files of ${select.value}` + (limit && !near ? `; the limit of ${show(limit, "bytes")} is far away` : "")
        + (forecast ? `; full in ${show(forecast.full_p10, "number")} / ${show(forecast.full_p50, "number")} / ${show(forecast.full_p90, "number")} days (p10, p50, p90)` : "; no forecast yet: fewer than three days");
      holder.replaceChildren(figure(caption, canvas(width, height, caption, grid, days, fan, full,
        svg("path", { d: path(mine), fill: "none", stroke: "var(--accent)", "stroke-width": 2 }))));
    }
    draw();
    return el("div", null, el("div", { class: "controls" }, select), holder);
  }

  function lanes(rows, { caption, begin, end }) {
    const [left, width, height, top] = [300, 1180, 22, 6];
    const x = (at) => left + ((at - begin) / Math.max(end - begin, 1)) * (width - left - 20);
    const drawn = rows.map((row, index) => svg("g", null,
      svg("text", { x: left - 8, y: top + index * height + 14, "text-anchor": "end" }, cut(row.name, 42), svg("title", null, row.name)),
      svg("line", { x1: left, x2: width - 20, y1: top + index * height + 10, y2: top + index * height + 10, class: "axis" }),
      row.parts.map((part) => svg("rect", { x: x(part.begin), y: top + index * height + 3, width: Math.max(x(part.end) - x(part.begin), 3), height: height - 8,
        rx: 2, fill: part.paint, stroke: part.broken ? "var(--critical)" : null, "stroke-width": part.broken ? 1.5 : null }, svg("title", null, part.label)))));
    const y = top + rows.length * height + 14;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const at = begin + part * (end - begin);
      return svg("text", { x: x(at), y, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle", class: "soft" },
        new Date(at).toISOString().slice(5, 16).replace("T", " "));
    });
    return canvas(width, y + 6, caption, drawn, ticks);
  }

  function leadershipChart() {
    const rows = objects("timeline").map((row) => ({ ...row, from: Date.parse(row.begin), to: Date.parse(row.end) }));
    if (!rows.length) return null;
    const groups = new Map();
    for (const row of rows) {
      const name = [fleets.length > 1 ? row.fleet : "", row.domain, row.kind, row.account, row.stream, row.consumer].filter(Boolean).join(" ");
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const restless = [...groups].map(([name, runs]) => ({ name, runs: runs.sort((one, other) => one.from - other.from), meta: runs[0].kind === "meta" }))
      .filter((group) => group.meta || group.runs.length > 1 || group.runs.some((run) => run.state !== "ok"))
      .sort((one, other) => other.meta - one.meta || other.runs.length - one.runs.length).slice(0, 40);
    if (!restless.length) return null;
    const leaders = [...new Set(restless.flatMap((group) => group.runs.map((run) => run.leader)).filter(Boolean))].sort(COLLATE);
    const [begin, end] = [Math.min(...rows.map((row) => row.from)), Math.max(...rows.map((row) => row.to))];
    const caption = "Leaders of the meta group and of groups with several leader changes; bordered in red: without quorum or leader";
    return figure(caption, lanes(restless.map((group) => ({ name: group.name, parts: group.runs.map((run, index) => ({
      begin: run.from, end: index + 1 < group.runs.length ? group.runs[index + 1].from : run.to,
      paint: run.leader ? color(leaders.indexOf(run.leader)) : "var(--ground)", broken: run.state === "no_leader" || run.state === "no_quorum",
      label: `${run.leader || "no leader"}, ${run.state}, ${moment(run.begin)} – ${moment(run.end)}` })) })), { caption, begin, end }),
    leaders.slice(0, 24).map((name, index) => [name, color(index)]));
  }

  const INCIDENTS = { no_leader: "var(--critical)", no_quorum: "var(--critical)", server_missing: "var(--s2)", server_unhealthy: "var(--warning)", not_redundant: "var(--info)" };
  function incidentsChart() {
    const rows = objects("incidents").map((row) => ({ ...row, from: Date.parse(row.begin), to: Date.parse(row.end || row.last) }));
    if (!rows.length) return null;
    const order = Object.keys(INCIDENTS);
    const worst = rows.sort((one, other) => order.indexOf(one.incident) - order.indexOf(other.incident) || other.seconds - one.seconds).slice(0, 40);
    const fleetRow = objects("timeline");
    const [begin, end] = [Math.min(...rows.map((row) => row.from), ...fleetRow.map((row) => Date.parse(row.begin))),
      Math.max(...rows.map((row) => row.to), ...fleetRow.map((row) => Date.parse(row.end)))];
    const caption = "Incidents, the worst first";
    return figure(caption, lanes(worst.map((row) => ({ name: [row.incident, row.server, row.domain, row.kind === "server" ? "" : row.kind, row.account, row.stream, row.consumer].filter(Boolean).join(" "),
      parts: [{ begin: row.from, end: row.to, paint: INCIDENTS[row.incident] || "var(--unknown)",
        label: `${row.incident}, ${moment(row.begin)}, ${show(row.seconds, "seconds")}, ${(row.causes || []).join("; ") || "no candidate"}` }] })), { caption, begin, end }),
    Object.entries(INCIDENTS));
  }

  // --- the page ------------------------------------------------------------------------------------------------------------------------
  function tiles() {
    const causes = objects("causes");
    const of = (severity) => causes.filter((row) => row.severity === severity).length;
    const reasons = objects("unknown");
    const unknown = reasons.reduce((total, row) => total + row.findings, 0);
    const made = SEVERITIES.map((severity) => [of(severity), `${severity} root causes`, of(severity) ? severity : "good"]);
    made.push([unknown, unknown ? `unknown results, reasons: ${reasons.length}` : "unknown results", unknown ? "unknown" : "good"]);
    const whole = objects("fleets");
    const sum = (key) => whole.reduce((total, row) => total + (row[key] || 0), 0);
    if (whole.length) {
      const missing = whole.reduce((total, row) => total + (row.missing || []).length, 0);
      made.push([sum("servers"), missing ? `servers, ${missing} missing` : "servers", missing ? "critical" : ""]);
      for (const [key, kind, title] of [["streams", "count", "streams"], ["consumers", "count", "consumers"], ["messages", "count", "messages"],
        ["bytes", "bytes", "data"], ["replica_bytes", "bytes", "on all replicas"], ["connections", "count", "clients"]]) {
        made.push([show(sum(key), kind), title, ""]);
      }
    }
    const tile = ([value, title, look]) => el("div", { class: `tile ${look}` }, el("b", null, typeof value === "number" ? show(value, "count") : value), el("span", null, title));
    return el("div", { class: "tiles", id: "summary" }, made.map(tile));
  }

  const CHARTS = { findings: findingsChart, activity: activityChart, load: balanceChart, usage: growthChart, timeline: leadershipChart,
    incidents: incidentsChart, trend: trendChart };
  const hygiene = new Set(data.hygiene || []);
  const isHygiene = (row, at) => (at.hygiene === undefined ? hygiene.has(row[at.check]) : row[at.hygiene]);
  const isFault = (row, at) => !isHygiene(row, at);
  // A section is a table, or one with a name, a filter and a text of its own.
  const TABS = [
    ["now", "Now", [["causes", "causes", isFault], ["findings", "findings", isFault], "fixed", "muted"]],
    ["hygiene", "Hygiene", [["hygiene-causes", "causes", isHygiene, "Configuration, redundancy and backups: no outage, but worth a fix."],
      ["hygiene-findings", "findings", isHygiene], "unknown", "backups", "checks"]],
    ["capacity", "Capacity", ["usage", "capacity", "headroom", "load", "balance", "accounts"]],
    ["assets", "Assets", ["fleets", "servers", "streams", "consumer_lag", "divergence", "availability"]],
    ["history", "History", ["trend", "activity", "incidents", "restarts", "storms", "timeline", "leadership", "changes"]],
  ];
  const parsed = (section) => (Array.isArray(section) ? section : [section, section]);

  function doNow() {
    // The worst three causes that are more than a note or a matter of hygiene, as in shape.py.
    const urgent = objects("causes").filter((row) => row.severity !== "info");
    const steps = urgent.filter((row) => row.severity === "critical" || !row.hygiene).slice(0, 3);
    const more = urgent.filter((row) => row.severity === "critical" && !steps.includes(row)).length;
    const step = (row) => el("li", { class: row.severity }, el("h3", null, fleets.length > 1 ? `${row.fleet}: ${row.title}` : row.title),
      el("p", { class: "about" }, el("span", { class: `badge ${row.severity}` }, row.severity), " ", row.new ? [el("span", { class: "badge new" }, "new"), " "] : null,
        row.impact, row.since ? ` Open since ${moment(row.since)}.` : null),
      row.shell ? row.commands.map(command) : row.commands.map((text) => el("p", { class: "advice" }, coded(text))));
    const nothing = () => el("p", null, "No finding requires immediate action.", objects("unknown").length ? " Unknown results may: see " : null,
      objects("unknown").length ? el("a", { href: "#unknown" }, "reasons for unknown results") : null);
    return el("section", { id: "do-now" }, el("h2", null, "Do now"), steps.length ? el("ol", null, steps.map(step)) : nothing(),
      more ? el("p", { class: "about" }, `${more} more critical: see `, el("a", { href: "#causes" }, "root causes"), ".") : null);
  }

  function sectionOf([id, name, only, about]) {
    const table = data.tables[name];
    if (!table) return null;
    const at = Object.fromEntries(table.columns.map(([key], index) => [key, index]));
    const rows = table.shown && table.rows.some((row) => (!only || only(row, at)) && (fleet === null || at.fleet === undefined || row[at.fleet] === fleet));
    const chart = CHARTS[id] ? CHARTS[id]() : null;
    if (!chart && !rows) return null;
    const elsewhere = id === "causes" ? table.rows.filter((row) => isHygiene(row, at)).length : 0;
    const text = `${about || table.about}${elsewhere ? ` Root causes under Hygiene: ${elsewhere}.` : ""}`;
    return el("section", { id }, el("h2", null, table.title), el("p", { class: "about" }, text), chart, rows ? tableOf(name, only, true, id) : null);
  }

  let open = "now";
  const built = new Set();
  const panel = (id) => document.getElementById(`tab-${id}`);
  function build(id) {
    if (built.has(id)) return;
    built.add(id);
    const sections = TABS.find(([tab]) => tab === id)[2].map(parsed).map(sectionOf).filter(Boolean);
    const links = sections.map((section) => el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent));
    const notes = data.notes.length ? el("div", { class: "notice" }, data.notes.map((note) => el("div", null, note))) : null;
    panel(id).replaceChildren(...(id === "now" ? [doNow(), tiles(), ...(notes ? [notes] : [])] : []),
      el("nav", { "aria-label": "Sections" }, links), ...(sections.length ? sections : [el("p", null, "Nothing to show.")]));
  }
  function select(id) {
    open = id;
    for (const [other] of TABS) {
      panel(other).hidden = other !== id;
      document.getElementById(`to-${other}`).setAttribute("aria-selected", String(other === id));
    }
    build(id);
  }
  function follow() {
    const [first, ...rest] = location.hash.slice(1).split("/").map(decodeURIComponent);
    if (["stream", "server"].includes(first)) showAsset([first, ...rest.map((part) => part || null)]);
    const tab = TABS.find(([id, , sections]) => (first === "tab" && id === rest[0]) || sections.some((section) => parsed(section)[0] === first));
    if (!tab) return;
    select(tab[0]);
    document.getElementById(first)?.scrollIntoView();
  }
  function draw() {
    built.clear();
    document.getElementById("main").replaceChildren(...TABS.map(([id]) => el("div", { id: `tab-${id}`, role: "tabpanel", "aria-labelledby": `to-${id}` })));
    const count = (id) => (id === "hygiene" && data.tables.causes ? objects("causes").filter((row) => row.hygiene).length : 0);
    const tabs = TABS.map(([id, title]) => el("button", { type: "button", role: "tab", id: `to-${id}`, "aria-controls": `tab-${id}`, click: () => select(id) },
      count(id) ? `${title} (${count(id)})` : title));
    const choice = fleets.length < 2 ? null : el("label", null, "fleet ", el("select", { id: "fleet", change: (event) => {
      fleet = event.target.value || null;
      draw();
    } }, el("option", { value: "" }, "all"), fleets.map((name) => fill(el("option", { value: name }, name), name === fleet ? { selected: "" } : {}, []))));
    document.getElementById("contents").replaceChildren(el("div", { role: "tablist" }, tabs), ...(choice ? [choice] : []));
    select(open);
  }
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => TABS.forEach(([id]) => build(id)));
  document.getElementById("when").textContent = (data.begin ? `${moment(data.begin)} to ${moment(data.end)}` : data.day)
    + `; generated ${moment(data.generated)}. `
    + (data.last_report ? `New: since the report of ${moment(data.last_report)}. ` : "") + "Times are UTC.";
  draw();
  follow();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.documentElement.dataset.ready = "true";
})().catch((error) => {
  document.getElementById("main").textContent = `This browser cannot show the report: ${error}. `
    + "The same content is in report.md, report.json and the CSV files beside it.";
  throw error;
});
