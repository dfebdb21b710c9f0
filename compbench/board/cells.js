// Pictures of cells: every combination held out for one or two methods, and one combination along a training.
const TILE = 56, CELLS_SHOWN = 40;
// What a cell is called: the names of its values, or factor and number.
const cellName = (facts, cell) => cell.map((v, i) => facts?.values?.[i]?.[v] ?? (facts?.factors?.[i] ? `${facts.factors[i][0]} ${v}` : v)).join(", ");
// One tile of a picture: a window on it, moved by whole tiles.
function tile(picture, name, place, real) {
  const [h, w] = picture.side, high = TILE * h / w, block = Math.floor(place / picture.columns), column = place % picture.columns, row = block * (picture.real ? 2 : 1) + (picture.real && !real ? 1 : 0);
  const blocks = Math.ceil(picture.count / picture.columns);
  return make("span", {class: "tile", style: `width:${TILE}px;height:${high}px;background-image:var(${name});background-size:${picture.columns * TILE}px ${blocks * (picture.real ? 2 : 1) * high}px;background-position:${-column * TILE}px ${-row * high}px`});
}
const sheet = named => named.map(([name, uri]) => `${name}:url("${uri}")`).join(";");
// The held-out combinations in order: the real picture, and below it one of each method; in the caption what share was right.
function cellGrid(board, sides) {
  const own = sides.filter((p, i) => sides.indexOf(p) === i), key = `cells ${board.id}`, facts = board.facts;
  const tiles = own.map((p, side) => { const found = new Map(); p.held.parts.forEach((part, k) => board.cells[part.cells].forEach((cell, place) => { const text = cell.join(); if (!found.has(text)) found.set(text, []); found.get(text).push([part, `--p${side}-${k}`, place, cell]); })); return found; });
  const right = own.map(p => heatOf(board.rows.find(r => r.method === p.method && r.variant === p.variant)));
  const percent = (side, text) => right[side].has(text) ? `${right[side].get(text).percent} %` : "";
  const all = [...tiles[0].keys()], listed = unfolded.has(key) ? all : all.slice(0, CELLS_SHOWN);
  const figures = listed.map(text => {
    const columns = tiles[0].get(text).map(([part, name, place, cell], i) => { const other = tiles.slice(1).map(found => found.get(text)?.[i]); return make("span", {class: "stack"}, part.real ? tile(part, name, place, true) : "", tile(part, name, place, false), ...other.map(found => found ? tile(found[0], found[1], found[2], false) : make("span", {class: "tile"}))); });
    const words = cellName(facts, tiles[0].get(text)[0][3]), shares = own.map((p, side) => percent(side, text)), said = own.map((p, side) => `${p.method}${shares[side] ? ` ${shares[side]} right` : ""}`).join(", ");
    return make("figure", {class: "cell", role: "img", "aria-label": `${words}: real, ${said}`, title: `${words}: ${said}`}, make("span", {class: "stacks"}, ...columns), make("figcaption", {}, words, shares.some(Boolean) ? make("small", {}, shares.join(" | ")) : ""));
  });
  const real = own[0].held.parts[0].real, lines = [...(real ? ["real data"] : []), ...own.map(p => p.method)], shownOf = all.length === own[0].held.of ? `all ${plural(all.length, "combination")} held out` : `${all.length} of ${own[0].held.of} combinations held out`;
  const node = make("div", {class: "cells", style: sheet(own.flatMap((p, side) => p.held.parts.map((part, k) => [`--p${side}-${k}`, part.uri])))}, make("p", {class: "note"}, `From top to bottom: ${lines.join(", ")}. Seed ${[...new Set(own.map(p => p.seed))].join(" and ")}; ${shownOf}. Percent: share of samples right, over all seeds that hold the combination out.`), make("div", {class: "lattice-cells"}, ...figures));
  if (listed.length < all.length) {
    const button = make("button", {type: "button", class: "more"}, `+${all.length - listed.length} more`);
    button.addEventListener("click", () => { unfolded.add(key); show(); });
    node.append(button);
  }
  return node;
}
// One combination that is never seen, along the training: a row a method, a column a point, the ranking score under it.
function filmstrip(board, rows) {
  const films = board.films.filter(f => rows.some(r => r.method === f.method && r.variant === f.variant));
  if (!films.length) return "";
  const steps = [...new Set(films.flatMap(f => f.frames.map(p => p.step)))].sort((a, b) => a - b), first = films[0], same = films.every(f => f.cell.join() === first.cell.join());
  const strip = (frame, name, real) => make("span", {class: "stack"}, ...Array.from({length: frame.count}, (_, place) => tile(frame, name, place, real)));
  const lines = films.map((film, i) => {
    const at = new Map(film.frames.map((frame, k) => [frame.step, [frame, `--f${i}-${k}`]])), [last, lastName] = at.get(film.frames.at(-1).step);
    return make("tr", {}, make("th", {scope: "row"}, methodLink(film.method), make("span", {class: "sub"}, [film.variant, `seed ${film.seed}`, same ? "" : cellName(board.facts, film.cell)].filter(Boolean).join("; "))), make("td", {}, last.real ? strip(last, lastName, true) : ""),
      ...steps.map(step => at.has(step) ? make("td", {}, strip(...at.get(step), false), make("small", {}, at.get(step)[0].score)) : make("td")));
  });
  return make("div", {class: "scroll film", tabindex: "0", role: "region", "aria-label": "one combination along the training", style: sheet(films.flatMap((f, i) => f.frames.map((frame, k) => [`--f${i}-${k}`, frame.uri])))}, make("table", {}, make("caption", {}, `${same ? `${cellName(board.facts, first.cell)}: a` : "A"} combination that is never seen, along the training; below, the score of all combinations held out.`), make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "method"), make("th", {scope: "col"}, "real"), ...steps.map(step => make("th", {scope: "col"}, `step ${step.toLocaleString("en")}`)))), make("tbody", {}, ...lines)));
}
