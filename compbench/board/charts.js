"use strict";
// Elements and charts: quality against training cost with its Pareto front, intervals of a row, the lattice of a task.
const $ = id => document.getElementById(id), SVG = $("canvas").namespaceURI;
const asText = child => typeof child === "number" ? String(child) : child;
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== undefined && value !== null && value !== "" && value !== false) node.setAttribute(name, value);
  node.append(...children.flat().filter(child => child !== null && child !== undefined && child !== "").map(asText));
  return node;
}
function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.map(asText));
  return node;
}
const engineering = value => { for (const [size, letter] of [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= size) return `${Number((value / size).toPrecision(3))} ${letter}`; return String(value); };

// Share attained against what a method costs over one family.  A method is on the front if none is better for less.
const COSTS = {
  flops: {title: "FLOPs", axis: "FLOPs of training and 10,000 samples, mean over its tasks (log) →", sign: 1, words: p => p.cost},
  rate: {title: "samples/s", axis: "samples/s at the batch, mean over its tasks (log) →", sign: -1, words: p => `${engineering(p.rate)} samples/s`},
};
function paretoChart(family, points, by = "flops") {
  const {axis, sign, words} = COSTS[by];
  const W = innerWidth < 640 ? 400 : 800, H = 360, L = 40, R = 20, T = 12, B = 44;  // a phone's text is not scaled down
  const logs = points.map(p => Math.log10(p[by])), pad = Math.max(.15, .12 * (Math.max(...logs) - Math.min(...logs)));
  const left = Math.min(...logs) - pad, right = Math.max(...logs) + 1.6 * pad;
  const X = v => L + (Math.log10(v) - left) / (right - left) * (W - L - R), Y = v => H - B - v * (H - T - B);
  const svg = draw("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${family}: share attained against cost: ${points.map(p => `${p.method} ${p.text} at ${words(p)}`).join("; ")}`});
  for (const v of [0, .25, .5, .75, 1]) svg.append(draw("line", {x1: L, x2: W - R, y1: Y(v), y2: Y(v), class: "rule"}), draw("text", {x: L - 6, y: Y(v) + 4, "text-anchor": "end"}, v));
  const steps = right - left < 1.5 ? [1, 2, 5] : [1], ticks = [];
  for (let e = Math.floor(left); e <= right; e++) ticks.push(...steps.map(m => m * 10 ** e).filter(v => Math.log10(v) >= left && Math.log10(v) <= right));
  for (const v of ticks) svg.append(draw("line", {x1: X(v), x2: X(v), y1: T, y2: H - B, class: "rule"}), draw("text", {x: X(v), y: H - B + 17, "text-anchor": "middle"}, engineering(v)));
  svg.append(draw("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle"}, axis));
  const competing = points.filter(p => p.state !== "reference" && p.whole).sort((a, b) => sign * (a[by] - b[by]) || b.mean - a.mean);
  let best = -1;
  const front = competing.filter(p => p.mean > best && (best = p.mean, true));
  if (front.length > 1) svg.append(draw("polyline", {class: "front", points: front.map((p, i) => (i ? `${X(p[by])},${Y(front[i - 1].mean)} ` : "") + `${X(p[by])},${Y(p.mean)}`).join(" ")}));
  const spots = points.map(p => ({...p, x: X(p[by]), y: Y(p.mean), aside: p.state === "reference"})), leaders = svg.appendChild(draw("g", {}));
  for (const p of spots) {
    if (p.low !== null && p.low !== undefined) svg.append(draw("line", {x1: p.x, x2: p.x, y1: Y(p.low), y2: Y(p.high), class: `spread ${p.aside ? "aside" : "mark"}`, "stroke-width": 1.5}));
    const dot = p.aside ? draw("rect", {x: p.x - 4, y: p.y - 4, width: 8, height: 8, class: "aside", "stroke-dasharray": p.whole ? "none" : "2 2", transform: `rotate(45 ${p.x} ${p.y})`}) : draw("circle", {cx: p.x, cy: p.y, r: 4.5, class: p.whole ? "mark" : "part"});
    dot.append(draw("title", {}, `${p.method}: ${p.words}, ${words(p)}`));
    svg.append(dot);
  }
  // A name stands where it meets no dot and no other name, the front's first; a leader joins it to its dot if it is far.
  const order = [...spots].sort((a, b) => a.aside - b.aside || front.some(p => p.method === b.method) - front.some(p => p.method === a.method) || b.mean - a.mean);
  const taken = spots.map(p => ({left: p.x - 5, right: p.x + 5, top: p.y - 5, bottom: p.y + 5})), unnamed = [];
  const free = box => box.left >= L && box.right <= W && box.top >= 0 && box.bottom <= H - B - 2 && !taken.some(o => box.left < o.right && o.left < box.right && box.top < o.bottom && o.top < box.bottom);
  for (const p of order) {
    const name = p.method.length > 20 ? `${p.method.slice(0, 19)}…` : p.method, width = name.length * 7.4 + 2, boxAt = (left, middle) => ({left, right: left + width, top: middle - 8, bottom: middle + 6});
    const shifts = [0, -13, 13, -26, 26, -39, 39, -52, 52, -65, 65], near = shifts.flatMap(dy => [[p.x + 9, dy], [p.x - 9 - width, dy]]), far = shifts.flatMap(dy => [[p.x + 40, dy], [p.x - 40 - width, dy]]);
    const box = [...near, [p.x - width / 2, -13], [p.x - width / 2, 15], ...far].map(([left, dy]) => boxAt(left, p.y + dy)).find(free);
    if (!box) { unnamed.push(p.method); continue; }
    taken.push(box);
    const middle = (box.top + box.bottom) / 2 + 1, end = box.left > p.x ? box.left - 2 : box.right < p.x ? box.right + 2 : p.x;
    if (Math.abs(middle - p.y) > 8 || Math.abs(end - p.x) > 12) leaders.append(draw("line", {x1: p.x, x2: end, y1: p.y, y2: middle, class: "leader"}));
    const left = box.right < p.x;  // of the dot: the name ends next to it, however wide its letters are
    svg.append(draw("text", {x: left ? box.right - 1 : box.left + 1, y: middle + 4, "text-anchor": left ? "end" : "start", class: "name"}, name));
  }
  const legend = make("ul", {class: "legend"}, make("li", {}, "● ran all tasks"), make("li", {}, "○ ran some"), make("li", {}, "◇ reference, dashed: ran some"), make("li", {}, "— Pareto front: nothing better for less"), unnamed.length ? make("li", {}, `without room for their names: ${unnamed.join(", ")}`) : null);
  return make("figure", {class: "plot"}, svg, legend);
}

// Share attained on held-out cells against the share of cells seen: a line a method, full for orthotopic designs, dashed for random ones.
function coverageChart(ladder, shown) {
  const W = 640, H = 320, L = 40, R = 150, T = 14, B = 44, lines = ladder.lines.filter(l => shown(l.method)), methods = [...new Set(ladder.lines.map(l => l.method))];
  const X = v => L + v * (W - L - R), Y = v => H - B - v * (H - T - B), colour = method => `line l${methods.indexOf(method) % 8}`;
  const said = lines.map(l => `${l.method}, ${l.design}: ${l.points.map(([c, mean]) => `${mean.toFixed(2)} at ${c.toFixed(2)}`).join(", ")}`).join("; ");
  const svg = draw("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${ladder.task}: share attained against coverage: ${said}`});
  for (const v of [0, .25, .5, .75, 1]) svg.append(draw("line", {x1: L, x2: W - R, y1: Y(v), y2: Y(v), class: "rule"}), draw("text", {x: L - 6, y: Y(v) + 4, "text-anchor": "end"}, v), draw("text", {x: X(v), y: H - B + 17, "text-anchor": "middle"}, v));
  svg.append(draw("line", {x1: X(ladder.least), x2: X(ladder.least), y1: T, y2: H - B, class: "ceiling"}), draw("text", {x: X(ladder.least) - 4, y: T + 10, "text-anchor": "end"}, "C_min"), draw("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle"}, "share of the cells seen →"));
  const placed = [];
  for (const line of [...lines].sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1])) {
    svg.append(draw("polyline", {class: colour(line.method), "stroke-dasharray": line.design === "random" ? "5 4" : "none", points: line.points.map(([c, mean]) => `${X(c)},${Y(mean)}`).join(" ")}));
    for (const [c, mean, low, high, runs] of line.points) {
      const dot = draw("circle", {cx: X(c), cy: Y(mean), r: 3.5, class: `${colour(line.method)} dot`});
      dot.append(draw("title", {}, `${line.method}, ${line.design}: ${mean.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)} over ${plural(runs, "run")}) where ${Math.round(100 * c)} % is seen`));
      svg.append(draw("line", {x1: X(c), x2: X(c), y1: Y(low), y2: Y(high), class: colour(line.method)}), dot);
    }
    if (placed.some(o => o.method === line.method)) continue;
    let at = Y(line.points.at(-1)[1]) + 4;
    while (placed.some(o => Math.abs(o.at - at) < 13)) at += 2;
    placed.push({at, method: line.method});
    svg.append(draw("text", {x: W - R + 8, y: at, class: "name"}, line.method.length > 20 ? `${line.method.slice(0, 19)}…` : line.method), draw("circle", {cx: W - 8, cy: at - 4, r: 3.5, class: `${colour(line.method)} dot`}));
  }
  const legend = make("ul", {class: "legend"}, make("li", {}, "— orthotopic design"), lines.some(l => l.design === "random") ? make("li", {}, "- - random design of the same size") : "", make("li", {}, "bars: least and most over runs"), make("li", {}, "C_min: fewer cells cannot fix an additive model"));
  return make("figure", {class: "plot"}, svg, legend);
}

// The interval of a row on the axis of its board, with the ceiling.
function forest(row, cell, axis, words) {
  const W = 190, H = 20, X = v => 6 + (v - axis.low) / (axis.high - axis.low || 1) * (W - 12), kind = row.kind === "run" ? "mark" : "aside";
  const svg = draw("svg", {viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": words});
  // Further right is better, as everywhere on the page: a score that is better lower is drawn mirrored.
  const plot = svg.appendChild(draw("g", axis.lower ? {transform: `translate(${W},0) scale(-1,1)`} : {}));
  plot.append(draw("line", {x1: 2, x2: W - 2, y1: H / 2, y2: H / 2, class: "rule"}));
  if (axis.ceiling !== null) plot.append(draw("line", {x1: X(axis.ceiling), x2: X(axis.ceiling), y1: 1, y2: H - 1, class: "ceiling"}));
  const ends = row.interval || [cell[0], cell[0]], inside = v => Math.min(axis.high, Math.max(axis.low, v));
  plot.append(draw("line", {x1: X(inside(ends[0])), x2: X(inside(ends[1])), y1: H / 2, y2: H / 2, class: kind, "stroke-width": 3}));
  if (cell[0] === inside(cell[0])) plot.append(draw("circle", {cx: X(cell[0]), cy: H / 2, r: 4.5, class: kind, "stroke-width": 2}));
  // An arrow where the interval, or the row with it, goes on beyond the axis.
  for (const [beyond, tip, base] of [[ends[0] < axis.low || cell[0] < axis.low, 0, 8], [ends[1] > axis.high || cell[0] > axis.high, W, W - 8]])
    if (beyond) plot.append(draw("polygon", {points: `${tip},${H / 2} ${base},${H / 2 - 5} ${base},${H / 2 + 5}`, class: `${kind} arrow`}));
  return svg;
}
function forestAxis(rows, primary) {
  const cells = rows.map(row => row.cells[primary]).filter(cell => cell && cell.length > 1), ceilings = cells.map(cell => cell[3]).filter(v => v !== null);
  if (!cells.length) return null;
  const ceiling = ceilings.length ? ceilings.reduce((a, b) => a + b) / ceilings.length : null;
  const middle = cells.map(cell => cell[0]), most = Math.max(...middle, ceiling ?? -Infinity), least = Math.min(...middle, ceiling === null ? Infinity : 0), room = (most - least) * .15 || 1;
  const ends = rows.flatMap(row => row.interval || []).filter(v => v > least - 4 * room && v < most + 4 * room);
  return {low: Math.min(least, ...ends), high: Math.max(most, ...ends), ceiling};
}

// Percent of right samples by cell, "0,3" for the cell [0, 3]; a row's codes are in the order of its board's places: a letter for each 4 % from a to z, a capital if the cell is held out, then the rest; "-" without a score.
const heatOf = row => new Map([...(row?.heat || "").matchAll(/([a-z-])(\d?)/gi)].map(([, letter, rest], i) => [row.board.places[i], {percent: 4 * (parseInt(letter, 36) - 10) + Number(rest), held: letter < "a"}]).filter(([, found]) => !Number.isNaN(found.percent)));
// Cells of the factors that the holdout is about: seen, and held out; with a row, its own cells, coloured by its share of right samples.
function lattice(facts, row) {
  const [first, second] = facts.factors, rows = second ? first[1] : 1, columns = second ? second[1] : first[1];
  if (facts.factors.length > 2 || rows * columns > 4096) return null;
  const side = Math.max(2, Math.min(16, Math.floor(200 / Math.max(rows, columns)))), gap = side > 5 ? 1 : 0, heat = heatOf(row);
  const held = new Set(heat.size ? [...heat].filter(([, found]) => found.held).map(([cell]) => cell) : facts.cells.map(String));
  const whose = heat.size ? row.seeds > 1 ? "in at least one seed" : "in its seed" : "in seed 0";
  const label = `lattice of ${facts.factors.map(([name, size]) => `${name.replaceAll("_", " ")} (${size})`).join(" by ")}: ${rows * columns - held.size} seen cells, ${held.size} held out ${whose}`;
  const svg = draw("svg", {viewBox: `0 0 ${columns * side} ${rows * side}`, width: columns * side, height: rows * side, role: "img", "aria-label": label});
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) svg.append(draw("rect", {x: c * side, y: r * side, width: side - gap, height: side - gap, class: held.has(String(second ? [r, c] : [c])) ? "held" : "seen"}));
  if (heat.size) [...svg.children].forEach((rect, i) => {
    const cell = String(second ? [Math.floor(i / columns), i % columns] : [i]), share = heat.get(cell)?.percent;
    if (share === undefined) return;
    rect.setAttribute("class", held.has(cell) ? "heat held" : "heat seen");
    rect.setAttribute("fill-opacity", (.12 + .88 * share / 100).toFixed(2));
    rect.append(draw("title", {}, `${cell.replace(",", ", ")} ${held.has(cell) ? "held out" : "seen"}: ${share} % right`));
  });
  const words = second ? `${first[0].replaceAll("_", " ")} ↓ ${second[0].replaceAll("_", " ")} →` : `${first[0].replaceAll("_", " ")} →`;
  return make("figure", {}, svg, make("figcaption", {}, heat.size ? `${words}: the fuller a cell, the more of its samples are right; grey is seen, brown is held out ${whose}` : `${words}: grey seen, dark held out ${whose}`));
}
