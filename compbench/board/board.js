// The page: filters and search, the matrix of methods by families, one panel per task, one per method.  The address keeps the state.

// The objects and lists of packed JSON; packing.py describes the forms of a list.
function unpacked(value) {
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  if (value.$pool) { const pool = value.$pool.map(unpacked); return value.at.map(place => pool[place]); }
  if (value.$lists) { const joined = unpacked(value.of); let end = 0; return unpacked(value.$lists).map(length => joined.slice(end, end += length)); }
  if (!value.$columns) return Object.fromEntries(Object.entries(value).map(([name, own]) => [name, unpacked(own)]));
  const names = Object.keys(value.$columns), columns = Object.values(value.$columns).map(unpacked), lists = Array.isArray(value.$columns);
  const items = columns[0].map((_, i) => lists ? columns.map(column => column[i]) : Object.fromEntries(names.map((name, j) => [name, columns[j][i]])));
  for (const [place, other] of unpacked(value.others)) items.splice(place, 0, other);
  return items;
}
const data = unpacked(JSON.parse($("data").textContent)), boards = data.boards, contests = data.contests, STATES = data.states, BEST = STATES.best;
for (const board of boards) { board.columns = board.columns.map(i => data.columns[i]); for (const row of board.rows) row.board = board; }
const EMPTY = {tab: "", preset: "", family: "", source: "", task: "", method: "", q: ""};
let chosen = {...EMPTY};
const opened = new Set(), closed = new Set(), unfolded = new Set(), sorts = new Map(), picked = new Map();
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`, label = row => row.variant ? `${row.method} (${row.variant})` : row.method;
const hash = more => `#${Object.entries({...EMPTY, ...more}).filter(([, v]) => v).map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&")}`;
const words = () => chosen.q.toLowerCase().split(/\s+/).filter(Boolean), has = (text, all) => all.every(word => text.toLowerCase().includes(word));
const contest = () => chosen.preset ? contests.find(c => c.preset === chosen.preset) : contests[data.first];

function filters() {
  const order = ["smoke", "quick", "standard", "paper"], known = key => [...new Set(boards.map(b => b[key]).filter(Boolean))];
  const values = {preset: known("preset").sort((a, b) => order.indexOf(a) - order.indexOf(b)), family: known("family"), source: known("source"), task: known("task"), method: data.methods.map(m => m.method)};
  const search = make("input", {type: "search", placeholder: "search", "aria-label": "search methods, tasks, scores, data sets and papers", value: chosen.q});
  search.addEventListener("input", () => { chosen.q = search.value; show(); reveal(); });
  const nodes = [make("label", {}, search)];
  for (const [key, list] of Object.entries(values)) {
    const select = make("select", {"aria-label": `filter by ${key}`, id: `filter-${key}`});
    select.append(new Option(`all ${key === "family" ? "families" : `${key}s`}`, ""), ...list.map(value => new Option(value === "smoke" ? "smoke (only a test)" : value, value)));
    select.value = list.includes(chosen[key]) ? chosen[key] : "";
    select.addEventListener("change", () => { chosen[key] = select.value; show(); reveal(); });
    nodes.push(make("label", {}, select));
  }
  const clear = make("button", {type: "button", class: "more"}, "clear");
  clear.addEventListener("click", () => { chosen = {...EMPTY, tab: chosen.tab}; filters(); show(); reveal(); });
  $("filters").replaceChildren(...nodes, clear, make("span", {class: "count", id: "count", role: "status"}));
}

// A column head that sorts: first by what is best, then the other way.
function sortable(key, title, state, hint, upFirst, attributes) {
  const button = make("button", {type: "button", title: hint}, title), cell = make("th", {scope: "col", ...attributes}, button), now = sorts.get(state);
  button.addEventListener("click", () => { const old = sorts.get(state); sorts.set(state, {key, up: old && old.key === key ? !old.up : upFirst}); show(); document.querySelector(`th[aria-sort][data-table="${CSS.escape(state)}"] button`)?.focus(); });
  if (now && now.key === key) { cell.setAttribute("aria-sort", now.up ? "ascending" : "descending"); cell.dataset.table = state; }
  return cell;
}
function ordered(rows, state, valueOf) {
  const sort = sorts.get(state);
  if (!sort) return rows;
  return [...rows].sort((a, b) => {
    const x = valueOf(a, sort.key) ?? null, y = valueOf(b, sort.key) ?? null;
    if (x === null || y === null) return (x === null) - (y === null);
    return (sort.up ? 1 : -1) * (x < y ? -1 : x > y ? 1 : 0);
  });
}

// After a choice the page scrolls to the chosen panel.
function reveal() { if (scrollY > $("main").offsetTop) scrollTo({top: $("main").offsetTop - 60}); }

function coverage(shownMethod, fits) {
  const found = data.ladders.filter(l => fits(l) && l.lines.some(line => shownMethod(line.method)));
  const card = l => make("div", {class: "card"}, make("p", {class: "note"}, `${l.task}, ${[l.preset, ...l.changed].join(", ")}, ${l.source} data`), coverageChart(l, shownMethod));
  const nodes = found.length ? [make("h2", {}, "How much of the lattice must be seen?"), make("p", {class: "lead"}, "Share attained on held-out cells, of the way from a random cell to what the judge finds on real data, against the share of cells seen."), make("div", {class: "ladders"}, ...found.map(card))] : [];
  $("coverage").replaceChildren(...nodes);
}

const silos = row => row.timing && row.timing.silos;
const middle = (row, place) => { const text = row.middle?.split(" ")[place]; return text ? [Number(text.replaceAll(",", "")), text] : null; };
const SEEDS = [
  {key: "median", title: "median", of: row => middle(row, 0), hint: "of the seeds, of the score that ranks"},
  {key: "worst", title: "worst", of: row => middle(row, 1), hint: "the worst seed, of the score that ranks"},
];
const COST = [
  {key: "trainFlops", title: "training FLOPs", of: row => row.timing && row.timing.trainFlops, hint: "of the whole fit, over all silos: equal steps are not equal cost", up: true, unknown: true},
  {key: "sampleFlops", title: "FLOPs/sample", of: row => row.timing && row.timing.sampleFlops, hint: "counted for two samples: each is charged half of what is done once a request", up: true, unknown: true},
  {key: "samples", title: "samples/s", of: row => row.timing && row.timing.samples, rate: true, unknown: true},
  {key: "latency", title: "ms for one", of: row => row.timing && row.timing.latency, rate: true, unknown: true, up: true, more: timing => `; a request of one sample, median; p95 ${timing.p95} ms`},
  {key: "steps", title: "training steps/s", of: row => row.timing && row.timing.steps, rate: true, unknown: true},
  {key: "parameters", title: "parameters", of: row => row.parameters, up: true},
  {key: "seconds", title: "whole run", of: row => row.timing && row.timing.seconds, up: true},
  {key: "memory", title: "peak memory", of: row => row.timing && row.timing.memory, rate: true, unknown: true, up: true},
  {key: "evaluations", title: "evaluations", of: row => [row.evaluations, row.evaluations ?? ""], hint: "network evaluations for one sample", up: true},
  {key: "sent", title: "sent a silo", of: row => silos(row)?.sent, hint: "bytes that one silo sent during the fit, to all parties", up: true},
  {key: "received", title: "received a silo", of: row => silos(row)?.received, hint: "bytes that one silo received before its rounds", up: true},
  {key: "compute", title: "compute a silo", of: row => silos(row)?.compute, hint: "time that the method's functions ran in one silo", up: true},
  {key: "server", title: "server steps", of: row => silos(row)?.server, hint: "training steps of the server, in addition to those of the silos", up: true},
];
const scoresOf = board => board.columns.map((column, position) => ({...column, position, up: column.direction === "lower", title: `${column.split.replace(" combinations", "")} ${column.title}`.trim()}));
function columnsOf(board) {
  const all = [...scoresOf(board), ...[...SEEDS, ...COST].filter(column => column.unknown || board.rows.some(row => { const cell = column.of(row); return cell && cell[0] !== null; }))];
  const primary = all.find(c => c.primary), twin = primary && all.find(c => c.key === primary.key.replace(/^(heldout|all)_/, "seen_") && c !== primary);
  const timed = board.rows.some(row => row.timing?.samples[0] != null);
  const usual = new Set([primary?.key, twin?.key, "trainFlops", timed ? "samples" : "sampleFlops", "parameters"].filter(Boolean));
  // The papers often report another score than ours: it has a column next to ours.
  const papers = board.papers || [], filled = c => c.position !== undefined && papers.some(p => p.cells[c.position]);
  if (papers.length && !all.some(c => usual.has(c.key) && filled(c))) usual.add(all.find(filled)?.key);
  return {all, shown: all.filter(c => picked.get(c.key) ?? usual.has(c.key)), usual};
}
const valueOf = (row, key, all) => {
  if (key === "method") return label(row);
  if (key === "rank") return row.rank;
  if (key === "seeds") return row.seeds;
  const column = all.find(c => c.key === key), cell = column && (column.position !== undefined ? row.cells[column.position] : column.of(row));
  return cell && (column.position === undefined || cell.length > 1) ? cell[0] : null;
};
const OWN_PICTURES = {planning: "Plans: the path of the cube, from above", blobs: "Samples by the mode that was asked for; rings at three standard deviations"};
const pictured = task => OWN_PICTURES[task.split("-")[0]] || "Samples: real above, generated for the same combination below";
function scoreCell(column, row) {
  const cell = row.cells[column.position];
  if (!cell) return make("td");
  if (cell.length === 1) return make("td", {title: row.board.reasons[cell[0]]}, "n/a", make("small", {}, "see below"));
  const [, text, spread, ceiling, floor, seeds] = cell, span = column.primary && row.span ? row.span : spread ? `± ${spread}` : "";
  return make("td", {title: plural(seeds, "seed")}, make(column.primary ? "b" : "span", {}, text), make("small", {}, [span, ceiling !== null ? `real ${ceiling < 10 ? ceiling.toFixed(3) : ceiling.toPrecision(3)}` : floor ? `real ${floor}` : ""].filter(Boolean).join(" · ")));
}
function costCell(column, row) {
  const cell = column.of(row), bound = column.rate && cell && cell[0] !== null && !row.timing.clean, timing = row.timing || {};
  const how = column.rate ? (timing.hardware ? `${timing.hardware}${bound ? "; on a shared machine: a lower bound" : ""}${timing.remark ? `; ${timing.remark}` : ""}${column.more ? column.more(timing) : ""}` : "not measured: compbench profile") : column.key === "seconds" && timing.shared ? "with the whole of a fit that it shared" : column.hint || "";
  return make("td", {title: how}, cell && cell[1] !== "" && cell[1] !== null ? `${bound ? "≥ " : ""}${cell[1]}` : column.unknown && row.timing ? "?" : "");
}
function rowHead(board, row, folds, key) {
  const node = make("th", {scope: "row"}, methodLink(row.method), row.tag ? make("span", {class: "tag", title: row.notes[0]}, row.tag) : "", row.beyond ? make("span", {class: "tag over", title: row.beyond}, "beyond its budget") : "");
  if (folds) {
    const button = make("button", {type: "button", class: "more", "aria-expanded": String(unfolded.has(key))}, unfolded.has(key) ? "fold" : `+ ${plural(folds, "ablation")}`);
    button.addEventListener("click", () => { unfolded.has(key) ? unfolded.delete(key) : unfolded.add(key); show(); document.querySelector(`[data-board="${CSS.escape(board.id)}"] [aria-expanded]`)?.focus(); });
    node.append(button);
  }
  if (row.variant) node.append(make("span", {class: "sub"}, make("bdi", {}, row.variant)));
  const marks = [row.device === "cpu" ? "" : row.device, row.level === "self-reported" ? "" : row.level, row.training === "external" ? "other training data too" : "", ...row.notes.slice(row.tag ? 1 : 0)].filter(Boolean);
  if (marks.length) node.append(make("details", {class: "mark"}, make("summary", {title: marks.join("; "), "aria-label": plural(marks.length, "note")}, "i"), ...marks.map(text => make("span", {class: "sub"}, make("bdi", {}, text)))));
  if (row.seeds) for (const text of row.failures) node.append(make("span", {class: "fail"}, make("bdi", {}, text)));
  return node;
}
function seedsCell(row) {
  const links = data.records ? row.records.slice(1).map(rest => row.records[0] + rest).map((name, i) => make("a", {href: `${data.records}/${encodeURIComponent(name)}.json`, title: name}, name.match(/\.s(\d+)\./)?.[1] ?? i)) : [];
  const text = row.seeds === row.runs ? String(row.seeds) : `${row.seeds} of ${row.runs}`;
  return make("td", {class: "inline", title: Object.entries(row.statuses).map(([s, n]) => `${n} ${s}`).join(", ")}, text, links.length ? make("small", {}, links.length > 1 ? " records of seeds " : " record of seed ", ...links.flatMap((a, i) => i ? [" ", a] : [a])) : "");
}
function bodyRow(board, row, columns, axis, folds) {
  const key = `${board.id} ${row.method}`, primary = board.columns.findIndex(c => c.primary), tr = make("tr", {class: row.kind === "ablation" ? "fold" : row.state}, rowHead(board, row, folds, key));
  tr.append(make("td", {class: row.state === "best" ? "best" : "", title: [row.rank !== null ? `rank ${row.rank}; seeds leave ranks ${row.range} open` : "", row.state === "best" ? "may be best" : row.state === "worse" ? "shown to be worse than another" : ""].filter(Boolean).join("; ")}, row.rank ?? "", row.rank !== null && row.range !== String(row.rank) ? make("small", {}, row.range) : ""));
  if (!row.seeds) { tr.append(make("td", {class: "broken", colspan: columns.length + 2}, ...row.failures.map(text => make("div", {}, make("bdi", {}, text))))); return tr; }
  const cell = row.cells[primary], drawn = axis && cell && cell.length > 1;
  const [first, rest] = leading(columns);
  tr.append(...first.map(column => scoreCell(column, row)), make("td", {class: "forest"}, drawn ? forest(row, cell, axis, `${label(row)}: ${cell[1]}${row.middle ? `, median ${row.middle.replace(" ", ", worst ")}` : ""}${row.span ? `, 95 % interval ${row.span}` : ", one seed"}`) : ""));
  tr.append(...rest.map(column => column.position === undefined ? costCell(column, row) : scoreCell(column, row)), seedsCell(row));
  return tr;
}
const leading = columns => [columns.filter(c => c.primary), columns.filter(c => !c.primary)];
function paperRow(paper, columns) {
  const tr = make("tr", {title: paper.note}, make("th", {scope: "row"}, paper.method, make("span", {class: "tag"}, "paper"), make("span", {class: "sub"}, `${paper.paper}${paper.table ? `, table ${paper.table}` : ""}; official data, their protocol`)), make("td")), [first, rest] = leading(columns);
  const cellOf = column => { const cell = column.position === undefined ? null : paper.cells[column.position]; return make("td", {}, cell ? cell[0] : "", cell && cell[1] ? make("small", {}, `± ${cell[1]}`) : ""); };
  return tr.append(...first.map(cellOf), make("td", {class: "forest"}), ...rest.map(cellOf), make("td")), tr;
}
function table(board, rows) {
  const {all, shown: columns} = columnsOf(board), state = `board ${board.id}`, primary = board.columns.findIndex(c => c.primary), axis = forestAxis(rows.filter(r => r.kind !== "reference" || !rows.some(o => o.kind === "run")), primary) || forestAxis(rows, primary);
  if (axis) axis.lower = board.columns[primary].direction === "lower";
  const arrow = c => ({higher: " ↑", lower: " ↓"})[c.direction] || "", head = make("tr", {}, sortable("method", "method", state, "by name", true), sortable("rank", "rank", state, "rank, and the ranks left open", true),
    ...leading(columns).flatMap((part, i) => [...(i ? [make("th", {scope: "col", class: "forest", title: "further right is better; an arrow in a row: the interval goes on beyond this axis"}, "95 % interval →")] : []), ...part.map(c => sortable(c.key, `${c.title}${arrow(c)}${c.primary ? " ★" : ""}`, state, [c.key.replaceAll("_", " "), c.direction && `${c.direction} is better`, c.unit, c.primary && "the board ranks by it", c.hint].filter(Boolean).join("; "), Boolean(c.up)))]), sortable("seeds", "seeds", state, "successful runs", false));
  const value = (row, key) => valueOf(row, key, all), running = rows.filter(r => r.kind === "run"), ablations = rows.filter(r => r.kind === "ablation"), references = rows.filter(r => r.kind === "reference");
  const lines = [], folded = method => ablations.filter(r => r.method === method), heads = ordered([...running, ...ablations.filter(r => !running.some(o => o.method === r.method))], state, value);
  for (const row of heads) {
    const own = row.kind === "run" ? ordered(folded(row.method), state, value) : [], key = `${board.id} ${row.method}`;
    lines.push(bodyRow(board, row, columns, axis, own.length));
    if (unfolded.has(key)) lines.push(...own.map(other => bodyRow(board, other, columns, axis, 0)));
  }
  const papers = board.papers.filter(paper => columns.some(c => c.position !== undefined && paper.cells[c.position]));
  const bodies = [make("tbody", {}, ...lines), references.length ? make("tbody", {class: "aside"}, ...ordered(references, state, value).map(row => bodyRow(board, row, columns, axis, 0))) : "", papers.length ? make("tbody", {class: "aside"}, ...papers.map(paper => paperRow(paper, columns))) : ""];
  return make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `scores of ${board.title}, ${board.protocol}`, "data-board": board.id}, make("table", {}, make("caption", {}, `${board.title}, ${board.protocol}, ${board.source} data: methods by rank, then ablations, references and the papers’ own figures.`), make("thead", {}, head), ...bodies.filter(Boolean)));
}
function picker(board) {
  const {all, shown} = columnsOf(board), node = make("details", {class: "columns", open: opened.has(`columns ${board.id}`) ? "open" : null}, make("summary", {}, `choose columns: ${shown.length} of ${all.length} scores and costs are shown`));
  node.addEventListener("toggle", () => node.open ? opened.add(`columns ${board.id}`) : opened.delete(`columns ${board.id}`));
  node.append(make("div", {}, ...all.map(c => { const box = make("input", {type: "checkbox", checked: shown.includes(c) ? "checked" : null}); box.addEventListener("change", () => { picked.set(c.key, box.checked); show(); }); return make("label", {}, box, ` ${c.title}`); })));
  return node;
}
function grids(pictures) {
  return make("div", {class: "grids"}, ...pictures.map(p => {
    const text = `${p.method}${p.variant ? ` (${p.variant})` : ""} on ${p.title}, ${p.protocol}, seed ${p.seed}`, button = make("button", {type: "button", title: "enlarge"}, make("img", {src: p.uri, alt: `samples of ${text}`, loading: "lazy"}));
    button.addEventListener("click", () => { const z = $("zoom"); z.querySelector("img").src = p.uri; z.querySelector("img").alt = text; z.querySelector("p").textContent = text; z.showModal(); });
    return make("figure", {}, button, make("figcaption", {}, text));
  }));
}
const picturesOf = board => board.pictures.map(p => ({...p, title: board.title, protocol: board.protocol}));
// The lattice of a task, by what a chosen method gets right where records say so cell by cell.
function lattices(board, facts, rows) {
  const known = rows.filter(r => r.heat.length && r.kind !== "ablation"), state = `heat ${board.id}`;
  if (!known.length) return lattice(facts);
  const row = known.find(r => label(r) === picked.get(state)) || known[0], choose = make("select", {"aria-label": "method whose cells are shown"}, ...known.map(r => new Option(label(r), label(r), false, r === row)));
  choose.addEventListener("change", () => { picked.set(state, choose.value); show(); });
  return make("div", {class: "heat"}, choose, lattice(facts, row));
}
const cited = facts => !facts.citation ? [] : facts.paper?.[2] ? [make("a", {href: facts.paper[2], rel: "noreferrer"}, facts.citation), "."] : [`${facts.citation}.`];
// Two methods' samples side by side, above their numbers.
const places = (board, shown) => { const rank = p => board.rows.findIndex(r => r.method === p.method); return [...shown].sort((a, b) => rank(a) - rank(b)); };
function pair(board, shown) {
  const state = side => `pair ${side} ${board.id}`, sorted = places(board, shown);
  const own = ["left", "right"].map((side, i) => sorted.find(p => p.method === picked.get(state(side))) || sorted[Math.min(i, sorted.length - 1)]);
  const chooser = (side, i) => { const choose = make("select", {"aria-label": `${side} method's samples`}, ...sorted.map(p => new Option(p.method, p.method, false, p === own[i]))); choose.addEventListener("change", () => { picked.set(state(side), choose.value); show(); }); return choose; };
  if (own.every(p => p.held)) return make("div", {}, make("p", {class: "note"}, make("label", {}, "one method ", chooser("left", 0)), " ", make("label", {}, "another ", chooser("right", 1))), cellGrid(board, own));
  return make("div", {class: "pair"}, ...["left", "right"].map((side, i) => make("div", {}, chooser(side, i), grids([own[i]]))));
}
function taskBody(board, rows) {
  const facts = board.facts, top = make("div", {class: "top"}, make("div", {}, facts ? make("p", {class: "lead"}, `${facts.summary}. `, ...cited(facts)) : "", board.preset === "smoke" ? make("p", {class: "smoke"}, data.smoke) : "", make("p", {class: board.ranks === false ? "lead verdict" : "lead"}, board.told), picker(board)), facts && facts.factors.length ? lattices(board, facts, rows) : "");
  const missing = new Map();
  for (const [name, reason] of board.missing) missing.set(reason, [...(missing.get(reason) || []), name]);
  const note = missing.size ? make("p", {class: "note"}, "Not available: ", [...missing].map(([reason, names]) => `${names.join("; ")} (${reason})`).join(". ")) : "", shown = picturesOf(board).filter(p => rows.some(r => r.method === p.method));
  return make("div", {class: "body"}, top, table(board, rows), rows.some(r => r.rank !== null) ? make("p", {class: "note"}, data.bars) : "", note, shown.length ? make("h3", {}, pictured(board.task)) : "", shown.length && facts?.cells.length > 1 && !OWN_PICTURES[board.task.split("-")[0]] && !shown.some(p => p.held) ? make("p", {class: "note"}, "Twenty samples of some combinations; runs from now on keep a picture of every combination held out.") : "", shown.length > 1 ? pair(board, shown) : "", shown.length === 1 ? (shown[0].held ? cellGrid(board, shown) : grids(shown)) : shown.length > 2 ? make("details", {class: "columns"}, make("summary", {}, `all ${shown.length} methods`), grids(shown)) : "", filmstrip(board, rows));
}
function panel(key, summary, body, open) {
  const isOpen = opened.has(key) || (open && !closed.has(key)), node = make("details", {class: "panel card", open: isOpen ? "open" : null, "data-panel": key}, make("summary", {}, ...summary));
  if (isOpen) node.append(body());
  node.addEventListener("toggle", () => { if (node.open) { opened.add(key); closed.delete(key); if (node.children.length < 2) node.append(body()); } else { opened.delete(key); closed.add(key); } });
  return node;
}
// What the head of a task's panel says: where the chosen method stands, or which is best, whatever else is filtered.
function standing(board) {
  const scored = row => `${row.method} ${row.cells[board.columns.findIndex(c => c.primary)]?.[1] ?? ""}`.trim();
  const own = chosen.method && board.rows.find(row => row.method === chosen.method && row.kind !== "ablation"), first = board.rows.filter(row => row.state === "best");
  if (own && own.seeds) return `${scored(own)}, ${own.rank !== null ? `rank ${own.range}` : own.kind === "reference" ? "reference" : "unranked"}`;
  if (first.length) return `${scored(first[0])}${first.length > 1 ? `, ${first.length - 1} more may be best` : ""}`;
  return board.ranks === false ? "does not rank at this preset" : "unranked";
}
// A board of few rows opens all of them; on a board of many rows the reader opens what he wants.
const FEW = 10;
function taskPanels(matches) {
  const few = boards.reduce((sum, board) => sum + board.rows.length, 0) < FEW;
  const found = matches.map(([board, rows]) => {
    return panel(`task ${board.id}`, [make("b", {}, board.title), make("span", {}, `${board.protocol}, ${board.source} data`), make("span", {}, standing(board)), make("span", {}, plural(new Set(rows.map(r => r.method)).size, "method"))], () => taskBody(board, rows), Boolean(chosen.task) || matches.length === 1 || few);
  });
  // Boards of other presets and settings stand below those of the page's preset, unless someone asks for them.
  const own = matches.map(([board]) => board.preset === contest()?.preset && board.protocol === board.preset), all = chosen.preset || chosen.task || words().length || !own.includes(true);
  const first = found.filter((_, i) => all || own[i]), rest = found.filter((_, i) => !all && !own[i]);
  $("tasks").replaceChildren(make("h2", {}, "Tasks"), ...first, rest.length ? panel("other boards", [make("b", {}, "Other presets and settings"), make("span", {}, plural(rest.length, "table"))], () => make("div", {class: "body"}, ...rest), false) : "");
}
// A paper's figure, with ours of the same score where it is not the one that ranks.
function beside(board, row, figure) {
  const place = board.columns.findIndex(c => c.key === figure.score), cell = place >= 0 ? row.cells[place] : null, name = figure.score.replace(/^(heldout|seen|all)_/, (_, split) => `${split === "heldout" ? "held-out" : split} `).replaceAll("_", " ");
  return make("div", {title: figure.paper}, figure.text, make("small", {}, `${name}${cell && cell.length > 1 && !board.columns[place].primary ? `; ours ${cell[1]}` : ""}; ${figure.paper}`));
}
function methodBody(method) {
  const own = boards.map(b => [b, b.rows.find(r => r.method === method.method && r.kind !== "ablation") || b.rows.find(r => r.method === method.method)]).filter(([, row]) => row), papers = method.papers;
  const standings = contests.flatMap(c => { const m = c.methods.find(o => o.method === method.method); return m ? c.families.map((f, i) => m.cells[i] && `${c.preset}, ${f.name}: ${m.cells[i].words}${m.cells[i].open ? `, rank ${m.cells[i].open}` : `, ${m.cells[i].state}`}`).filter(Boolean) : []; });
  const lines = own.map(([board, row]) => { const primary = board.columns.findIndex(c => c.primary), cell = row.cells[primary], ours = cell && cell.length > 1 ? cell[1] : row.seeds ? "n/a" : row.failures.join("; "), theirs = papers.filter(p => p.task === board.task);
    return make("tr", {}, make("th", {scope: "row"}, make("a", {href: hash({task: board.task})}, board.title), make("span", {class: "sub"}, `${board.protocol}, ${board.source} data${row.kind === "ablation" && row.variant ? `; ${row.variant}` : ""}`)), make("td", {}, row.range || (row.kind === "reference" ? "reference" : "")), make("td", {}, ours, make("small", {}, row.span || "")), make("td", {}, ...theirs.map(p => beside(board, row, p))), make("td", {}, row.timing && row.timing.trainFlops[1] || "?")); });
  const shown = boards.flatMap(board => picturesOf(board).filter(p => p.method === method.method));
  return make("div", {class: "body"}, method.address ? make("p", {class: "lead"}, make("a", {href: method.address}, "source code")) : "", standings.length ? make("p", {class: "lead"}, standings.join("; "), ".") : "",
    make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `scores of ${method.method}`}, make("table", {}, make("caption", {}, `${method.method} on every task: primary score with its 95 % interval; the paper’s figure is of official data and its own protocol.`), make("thead", {}, make("tr", {}, ...["task", "rank", "ours", "paper", "training FLOPs"].map(t => make("th", {scope: "col"}, t)))), make("tbody", {}, ...lines))), shown.length ? make("h3", {}, "Samples") : "", shown.length ? grids(shown) : "");
}
function methodPanels(methods) {
  const one = methods.length === 1 || Boolean(chosen.method);
  $("methods").replaceChildren(...(methods.length ? [make("h2", {}, "Methods")] : []), ...methods.map(m => panel(`method ${m.method}`, [make("b", {}, m.method), make("span", {}, m.summary)], () => methodBody(m), one)));
}

// What a search finds a board by: task, protocol, data set, scores, and the paper that it comes from.
const told_of = b => [b.title, b.protocol, b.source, b.family, b.facts?.summary, b.facts?.citation, b.facts?.paper?.[0], ...(b.facts?.files || []), ...b.columns.map(c => `${c.title} ${c.key}`), ...b.papers.map(p => p.paper)].filter(Boolean).join(" ");

function show() {
  const all = words(), hits = text => new Set(data.methods.filter(m => has(text(m), all)).map(m => m.method)), named = hits(m => m.method), told = hits(m => `${m.method} ${m.summary}`);
  const fits = b => ["preset", "family", "source", "task"].every(key => !chosen[key] || b[key] === chosen[key]);
  const matches = boards.filter(fits).map(b => {
    const rows = b.rows.filter(r => !chosen.method || r.method === chosen.method);
    if (!all.length || has(told_of(b), all)) return [b, rows];
    return [b, rows.filter(r => has(`${label(r)} ${b.title}`, all))];
  }).filter(([, rows]) => rows.length);
  const inRows = new Set(matches.flatMap(([, rows]) => rows.map(r => r.method)));
  // Words find methods by name, else by what they do, else those of the rows that are found.
  const byMethod = name => (!chosen.method || name === chosen.method) && (!all.length || [named, told, inRows].find(found => found.size)?.has(name));
  const methods = data.methods.filter(m => chosen.method ? byMethod(m.method) : (all.length && told.size ? told : inRows).has(m.method));
  overview(byMethod, new Set(matches.map(([b]) => b.id)));
  coverage(name => byMethod(name.split(" (")[0]), fits);
  taskPanels(matches);
  methodPanels(methods);
  if (!matches.length && !methods.length) { $("overview").replaceChildren(); $("coverage").replaceChildren(); $("methods").replaceChildren(); $("tasks").replaceChildren(make("p", {class: "empty"}, boards.length ? "Nothing matches." : "There are no records yet: compbench run writes some.")); }
  const narrowed = matches.length < boards.length || methods.length < data.methods.length;  // the head counts all of them
  $("count").textContent = narrowed ? `shown: ${plural(new Set(matches.map(([b]) => b.task)).size, "task")}, ${plural(methods.length, "method")}` : "";
  if (location.hash !== hash(chosen) && !(location.hash === "" && hash(chosen) === "#")) history.replaceState(null, "", hash(chosen) === "#" ? location.pathname + location.search : hash(chosen));
}
function fromAddress() {
  const anchor = /^#(tasks|methods|how)$/.exec(location.hash)?.[1];
  if (anchor && $("filters").children.length) return;
  chosen = {...EMPTY};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in chosen) chosen[key] = value;
  filters();
  show();
  if (anchor) $(anchor).scrollIntoView();
}
addEventListener("hashchange", () => { fromAddress(); if (chosen.method && !chosen.task) $("methods").scrollIntoView(); else if (chosen.task) $("tasks").scrollIntoView(); else if (chosen.family || chosen.preset) reveal(); });
$("zoom").addEventListener("click", () => $("zoom").close());
fromAddress();
