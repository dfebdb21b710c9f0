// The first screen: one card per question, one forest plot per task, the matrix of methods by tasks.  All values come from the records' view.
// Methods listed on a card of one task, of two, and of more; in a plot; and cards above a glossary.
const SHOWN = 4, TASK_SHOWN = 2, LEAST_SHOWN = 1, FOREST_SHOWN = 6, CARDS = 12;
const ALIKE = "The scores tell no methods apart";
const summaryOf = name => data.methods.find(m => m.method === name)?.summary || "";
const viewNow = () => chosen.preset ? data.views.find(v => v.preset === chosen.preset) : data.views[data.first];
const rowOf = (answer, entry) => boards[answer.board].rows[entry.row];
const methodLink = name => make("a", {href: hash({...keptState(), method: name}), title: `${name}: ${summaryOf(name)}`}, make("bdi", {}, name));
const taskLink = (task, text, told) => make("a", {href: hash({...keptState(), task}), title: `${told ? `${text}: ${told} (${task}: ` : `${task}: `}${boards.find(b => b.task === task)?.facts?.summary || ""}${told ? ")" : ""}`}, text);
const keptState = () => ({preset: chosen.preset, tab: chosen.tab});
const isWhole = (cell, family) => cell.ran === family.tasks.length;
const brief = entry => entry.score.replace(/ (right|reached|valid)$/, "").replace(/^distance /, "");
// The number alone, under a head that says its unit.
const bare = text => text.replace(/ %.*$/, "").replace(/^distance /, "");
const range = entry => entry.interval ? `, 95 % interval ${entry.interval}` : "";
const unitHead = answer => make("th", {scope: "col", title: answer.unit[1]}, answer.unit[0]);
const tera = entry => entry.flops === null ? "?" : String(Number((entry.flops / 1e12).toPrecision(2)));
const costOf = entry => entry.cost === "?" ? "cost not known" : entry.cost;
const TFLOP = "1 TFLOP = 10¹² additions or multiplications of numbers; 1 GFLOP = a thousandth";
// A word with its explanation where the pointer rests.
const term = (text, told, more) => make("span", {class: "term", title: told, ...more}, text);
// What an entry costs; where the pointer rests, the speed that was measured.
function price(answer, entry, short) {
  const {timing} = rowOf(answer, entry), flop = text => /[a-z]$/i.test(text) ? `${text}FLOP` : `${text} FLOP`;
  const parts = timing && entry.flops !== null ? `: ${flop(timing.trainFlops[1])} for the training and ${flop(timing.sampleFlops[1])} for each of 10,000 samples` : "; for the training and 10,000 samples";
  const rate = timing && timing.samples[0] !== null && timing.hardware ? `; ${entry.time ? `about ${entry.time}` : "not timed as a whole"} and ${timing.samples[1]} samples/s on ${timing.hardware}` : "";
  return term(short ? tera(entry) : costOf(entry), `${costOf(entry)}${parts}; ${TFLOP}${rate}`);
}

// Seeds as dots between ignoring the request (tick) and real data (dashed); the bar is the interval; hollow dots are shown to be worse, squares are not ranked.
function strip(answer, entry, width, low, height = 19) {
  const high = 1.08, middle = height / 2, X = v => 3 + (Math.min(high, Math.max(low, v)) - low) / (high - low) * (width - 6), kind = entry.state === "best" ? "mark" : "aside", size = height / 6;
  const seeds = entry.shares.map(v => v.toFixed(2)).join(", ");
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${rowOf(answer, entry).method}: ${entry.score}; seeds ${seeds} ${data.way}`});
  svg.append(draw("line", {x1: 1, x2: width - 1, y1: middle, y2: middle, class: "rule"}), draw("line", {x1: X(0), x2: X(0), y1: 2, y2: height - 2, class: "zero"}), draw("line", {x1: X(1), x2: X(1), y1: 0, y2: height, class: "ceiling"}));
  if (entry.low !== null) svg.append(draw("line", {x1: X(entry.low), x2: X(entry.high), y1: middle, y2: middle, class: kind, "stroke-width": 2.5, opacity: .45}));
  const judged = entry.state === "best" || entry.state === "worse", look = {class: entry.state === "best" ? "mark" : "part aside"};
  for (const v of entry.shares) svg.append(judged ? draw("circle", {cx: X(v), cy: middle, r: size, ...look}) : draw("rect", {x: X(v) - size, y: middle - size, width: 2 * size, height: 2 * size, ...look}));
  if (entry.shares.some(v => v < low)) svg.append(draw("polygon", {points: `0,${middle} 6,${middle - 4} 6,${middle + 4}`, class: `${kind} arrow`}));
  if (entry.seen !== null && width > 100) svg.append(draw("polygon", {points: `${X(entry.seen)},5 ${X(entry.seen) - 3},0 ${X(entry.seen) + 3},0`, class: "warm"}, draw("title", {}, "score of seen combinations")));
  svg.append(draw("title", {}, `${entry.score}; seeds at ${seeds}`));
  return svg;
}
const lowest = entries => Math.max(-.4, Math.min(0, ...entries.flatMap(e => e.shares))) - .05;

function verdictTag(answer) {
  return answer.verdict ? make("span", {class: `verdict v-${answer.verdict.replaceAll(" ", "-")}`, title: answer.meaning}, answer.far ? `${answer.verdict} ${answer.far}` : answer.verdict) : "";
}
function answerBlock(answer, shown, one, count, headed) {
  const filtered = answer.entries.filter(e => shown(rowOf(answer, e).method)), narrowed = filtered.length < answer.entries.length;
  const best = answer.entries.filter(e => e.state === "best"), listed = narrowed ? filtered : best, most = one ? SHOWN : count > 2 ? LEAST_SHOWN : TASK_SHOWN, low = lowest(listed);
  // The first of them, and the cheapest.
  const told = listed.filter((e, i) => i < most || !narrowed && e.row === answer.cheapest), rest = listed.filter(e => !told.includes(e));
  const lines = told.map(e => make("tr", {class: e.state}, make("th", {scope: "row"}, methodLink(rowOf(answer, e).method)), make("td", {}, strip(answer, e, 88, low)), make("td", {title: `${e.score}${range(e)}; real data ${answer.real}; ${STATES[e.state]}`}, bare(e.score)), make("td", {class: best.length > 1 && e.row === answer.cheapest ? "price cheapest" : "price"}, price(answer, e, true))));
  const label = answer.label || BEST, candidates = answer.ranked && !narrowed ? `${best.length}/${answer.ranked} ${BEST}` : "";
  const named = make("div", {class: "named"}, make("span", {}, answer.label ? taskLink(answer.task, answer.label, answer.about) : "", answer.label && candidates ? ": " : "", narrowed && !answer.label ? "the chosen methods" : candidates), verdictTag(answer));
  const head = make("thead", {}, make("tr", {}, make("td", {}), make("td", {}), unitHead(answer), make("th", {scope: "col", title: `${TFLOP}; of the training and 10,000 samples`}, "TFLOP")));
  const real = make("tfoot", {}, make("tr", {}, make("th", {scope: "row", title: "real data"}, "real"), make("td", {}), make("td", {}, answer.real ? bare(answer.real) : "?"), make("td", {})));
  const node = make("div", {class: "answer", "data-task": answer.task});
  if (lines.length) node.append(make("table", {"aria-label": `${answer.task}: ${label}`}, make("caption", {}, named), headed ? head : "", make("tbody", {}, ...lines), real));
  else node.append(named, make("p", {class: "note", title: answer.commands.join("\n")}, narrowed ? "The chosen methods did not run it." : answer.alike ? `${ALIKE}.` : answer.missing.length ? `Not ranked yet, ${answer.waits}. Run:` : "No method can be ranked yet: that takes two methods with two seeds each, better three. Run (with --plugin FILE.py for a method of your file):"));
  if (!lines.length && !narrowed) node.append(...answer.commands.map(text => make("code", {class: "command", title: "a click marks all of it"}, text)));
  const more = rest.length ? make("a", {href: hash({...keptState(), task: answer.task}), class: "more", title: rest.map(e => rowOf(answer, e).method).join(", ")}, `+${rest.length} more`) : "";
  if (more) node.append(make("p", {class: "cheap"}, more));
  if (answer.older) node.append(make("p", {class: "cheap"}, answer.older));
  return node;
}
function card(question, shown, before) {
  const answers = question.answers, one = answers.length === 1 && !answers[0].label;
  // One line names the tasks that cannot be ranked, if the reader has not narrowed the methods.
  const pending = answers.length > 1 ? answers.filter(a => !a.ranked && a.entries.every(e => shown(rowOf(a, e).method))) : [], ranked = answers.filter(a => !pending.includes(a));
  const named = a => [taskLink(a.task, a.label, a.about), ...(a.older ? [` (${a.older.replace(/\.$/, "").toLowerCase()})`] : [])];
  const line = (words, own) => own.length ? make("p", {class: "cheap", title: own.flatMap(a => a.commands).join("\n")}, [words, ...own.flatMap((a, i) => i ? [", ", ...named(a)] : named(a))]) : "";
  const waits = [...new Set(pending.filter(a => !a.alike).map(a => a.waits))];
  const waiting = [...waits.map(why => line(`Not ranked yet, ${why}: `, pending.filter(a => a.waits === why))), line(`${ALIKE}: `, pending.filter(a => a.alike))];
  const head = make("h3", {}, one ? taskLink(answers[0].task, question.title, question.about) : term(question.title, question.about));
  const tiles = question.picture ? make("figure", {class: "tiles"}, make("img", {src: question.picture, width: 202, height: 64, alt: `${question.title}: two seen combinations, then one that is never seen`}), make("figcaption", {}, make("span", {}, "seen"), make("span", {}, "unseen"))) : "";
  const all = !one && answers.length > 1 && question.everywhere.length ? make("p", {class: "cheap"}, [`on all ${answers.length}: `, ...question.everywhere.slice(0, 2).flatMap((name, i) => i ? [", ", methodLink(name)] : [methodLink(name)]), question.everywhere.length > 2 ? ` +${question.everywhere.length - 2} more` : ""]) : "";
  return make("article", {class: "card question"}, head, make("p", {class: "about"}, question.about === before?.about ? "\u00a0" : question.about), tiles, ...ranked.map((a, i) => answerBlock(a, shown, one, answers.length, !i || a.unit[0] !== ranked[i - 1].unit[0])), ...waiting, all);
}

function forestTable(question, answer, shown) {
  const entries = answer.entries.filter(e => shown(rowOf(answer, e).method)), key = `forest ${answer.task}`, open = unfolded.has(key) || Boolean(chosen.task) || entries.length < answer.entries.length;
  const competing = entries.filter(e => e.state !== "reference"), listed = open ? entries : competing.slice(0, FOREST_SHOWN), low = lowest(listed);
  const rows = listed.map(e => make("tr", {class: e.state}, make("th", {scope: "row"}, methodLink(rowOf(answer, e).method)), make("td", {}, strip(answer, e, 124, low, 24)), make("td", {title: `${e.score}${range(e)}; ${STATES[e.state]}; ${costOf(e)}`}, bare(e.score)), make("td", {class: "range"}, e.interval)));
  const title = answer.label ? `${question.title}, ${answer.label}` : question.title, left = entries.length - listed.length;
  const node = make("div", {class: "card forests"}, make("table", {}, make("caption", {}, make("div", {class: "named"}, make("span", {}, taskLink(answer.task, title, answer.about)), make("small", {title: answer.unit[1]}, answer.unit[0]))), make("tbody", {}, ...rows)));
  if (answer.crossing && answer.crossing.slice(0, 2).every(place => listed.some(e => e.row === place))) node.append(make("p", {class: "cheap crossing"}, answer.crossing[2]));
  if (left > 0) {
    const button = make("button", {type: "button", class: "more"}, `+${left} more`);
    button.addEventListener("click", () => { unfolded.add(key); show(); });
    node.append(button);
  }
  return node;
}

function taskMatrix(questions, found, shown) {
  const answers = questions.flatMap(q => q.answers.map(a => ({question: q, answer: a, by: new Map(a.entries.map(e => [rowOf(a, e).method, e]))})));
  const names = [...new Set(answers.flatMap(c => [...c.by.keys()]))].filter(shown), state = `matrix ${chosen.tab}`;
  const families = found ? found.families.map((f, i) => ({...f, place: i})).filter(f => questions.some(q => q.family === f.name) && f.tasks.length > 1) : [];
  const cellsOf = new Map((found ? found.methods : []).map(m => [m.method, m.cells]));
  const standing = name => { const own = answers.map(c => c.by.get(name)).filter(Boolean), competes = own.some(e => e.state !== "reference"); return [competes ? 0 : 1, -own.filter(e => e.state === "best").length, -own.reduce((sum, e) => sum + (e.share ?? 0), 0) / own.length]; };
  const places = new Map(names.map(name => [name, standing(name)]));
  const natural = names.sort((a, b) => { const x = places.get(a), y = places.get(b); return x[0] - y[0] || x[1] - y[1] || x[2] - y[2] || (a < b ? -1 : 1); });
  const value = (name, key) => key === "method" ? name : key.startsWith("family ") ? cellsOf.get(name)?.[found.families.findIndex(f => `family ${f.name}` === key)]?.mean : answers.find(c => c.answer.task === key)?.by.get(name)?.share;
  const rows = ordered(natural, state, value);
  const top = make("tr", {}, make("td", {}), ...questions.map(q => make("th", {scope: "colgroup", colspan: q.answers.length}, q.title)), families.length ? make("th", {scope: "colgroup", colspan: families.length, title: `mean over a family's tasks, ${data.way}; small: mean rank`}, "mean share, rank") : "");
  const head = make("tr", {}, sortable("method", "method", state, "by name", true), ...answers.map(c => sortable(c.answer.task, c.answer.label || c.answer.task, state, `${c.answer.task}; real data ${c.answer.real}`, false)), ...families.map(f => sortable(`family ${f.name}`, f.depends ? `${f.name} *` : f.name, state, `${f.tasks.join(", ")}${f.depends ? "; which method is first depends on the rule" : ""}`, false)));
  const cell = (c, name) => { const e = c.by.get(name); return e ? make("td", {class: e.state, title: `${name} on ${c.answer.task}: ${e.score} (real data ${c.answer.real}), ${STATES[e.state]}, ${costOf(e)}`}, brief(e)) : make("td", {}, make("span", {"aria-label": "not run"}, "")); };
  const mean = (f, name) => { const own = cellsOf.get(name)?.[f.place]; return make("td", {class: own ? `mean ${own.best ? "best" : own.rank === null ? own.state === "reference" ? "reference" : "unranked" : "worse"}` : "", title: own ? `${own.words}${own.meanRank === null ? "" : `; mean rank ${own.meanRank}`}` : ""}, own ? own.text : "", own && own.meanRank !== null ? make("small", {}, ` ${own.meanRank}`) : ""); };
  const body = make("tbody", {}, ...rows.map(name => make("tr", {}, make("th", {scope: "row"}, methodLink(name)), ...answers.map(c => cell(c, name)), ...families.map(f => mean(f, name)))));
  return make("div", {class: "scroll card matrix", tabindex: "0", role: "region", "aria-label": "methods by tasks"}, make("table", {}, make("caption", {}, "Filled: may be best. Grey: shown to be worse. ", make("i", {}, "Italic: reference or not ranked."), " Percent right, or distance.", families.some(f => f.depends) ? " *: which is first depends on the rule, mean share or mean rank." : ""), make("thead", {}, top, head), body));
}
function names(listed, questions) {
  const asked = questions.flatMap(q => [[q.title, q.about], ...q.answers.map(a => [a.label && `${q.title}, ${a.label}`, a.about])]).filter(([text, told]) => text && told);
  return make("details", {class: "panel card", id: "names"}, make("summary", {}, make("b", {}, "What all names mean"),), make("dl", {class: "how body"}, ...asked.flatMap(([text, told]) => [make("dt", {}, text), make("dd", {}, told)]), ...listed.flatMap(m => [make("dt", {}, methodLink(m.method)), make("dd", {}, m.summary)])));
}

function tabs(questions, silos) {
  const both = [false, true].filter(kind => questions.some(q => q.silos === kind));
  $("tabs").replaceChildren(...(both.length < 2 ? [] : both.map(kind => {
    const button = make("button", {type: "button", role: "tab", id: `tab-${kind ? "silos" : "site"}`, "aria-selected": String(kind === silos), "aria-controls": "overview", tabindex: kind === silos ? "0" : "-1"}, kind ? "Data in silos" : "One site");
    button.addEventListener("click", () => { chosen.tab = kind ? "silos" : ""; chosen.family = ""; chosen.task = ""; filters(); show(); $(button.id).focus(); });
    button.addEventListener("keydown", event => { if (["ArrowLeft", "ArrowRight"].includes(event.key)) $(kind ? "tab-site" : "tab-silos").click(); });
    return button;
  })));
}
const listOf = (kind, pairs) => make("dl", {class: kind}, ...pairs.map(([word, told]) => make("div", {}, make("dt", {}, word), " ", make("dd", {}, told))));
// What the signs on the cards mean; only of those that stand there.
function signs(questions) {
  const answers = questions.flatMap(q => q.answers), units = new Map(answers.map(a => a.unit).filter(([head]) => head)), beyond = answers.some(a => a.entries.some(e => e.state === "best" && e.shares.some(v => v > 1.005)));
  return listOf("signs", [["unseen", "each value was in training, this combination was not"], ["may be best", "no other is significantly better; seeds that vary much prove less"], ["dots", `one a seed, from ignoring the request (tick) to real data (dashed)${beyond ? " and by chance beyond" : ""}; bar: 95 % interval that allows for a failed seed`], ...units, ["TFLOP", `10¹² operations, of training and 10,000 samples (hover: each)${viewNow().pace ? `; ${viewNow().pace}` : ""}; bold: cheapest`]]);
}
// The cards, of which a run of neighbours says once what they are about, and after each few of them one line for each method that stands there for the first time.
function cards(questions, shown) {
  const parts = [], told = new Set();
  for (let i = 0; i < questions.length; i += CARDS) {
    const grid = make("div", {class: "questions"}, ...questions.slice(i, i + CARDS).map((q, j, own) => card(q, shown, own[j - 1])));
    const met = new Set([...grid.querySelectorAll("bdi")].map(n => n.textContent)), own = data.methods.filter(m => met.has(m.method) && m.gloss && !told.has(m.method));
    own.forEach(m => told.add(m.method));
    parts.push(grid, own.length ? listOf("glossary", own.map(m => [methodLink(m.method), m.gloss])) : "");
  }
  return parts;
}
// The verdicts that the cards name, in words; "that way" is the dots' way, which the line above names, and the first says it for all.
function legend(questions) {
  const met = new Set(questions.flatMap(q => q.answers.map(a => a.verdict))), own = Object.entries(data.verdicts).filter(([word]) => met.has(word));
  return own.length ? listOf("verdicts", own.map(([word, told], i) => [word, told.replace(` ${data.way}`, i ? "" : " of that way")])) : "";
}
// Everything that is seen before the panels: of the boards that match, and of the methods that are shown.
function overview(shown, matched) {
  const node = $("overview"), view = viewNow(), questions = (view ? view.questions : []), found = contest();
  const fitting = questions.map(q => ({...q, answers: q.answers.filter(a => matched.has(a.board) && a.entries.some(e => shown(rowOf(a, e).method)))})).filter(q => q.answers.length);
  const asked = chosen.tab === "silos", silos = fitting.some(q => q.silos === asked) ? asked : !asked, own = fitting.filter(q => q.silos === silos);
  tabs(questions, silos);
  if (!own.length) return node.replaceChildren(chosen.preset && !questions.length ? make("p", {class: "note"}, `No question was run at preset ${chosen.preset}; its boards stand below.`) : "");
  const listed = data.methods.filter(m => shown(m.method) && own.some(q => q.answers.some(a => a.entries.some(e => rowOf(a, e).method === m.method))));
  const key = make("div", {class: "lead key"}, view.preset === "smoke" ? make("p", {class: "smoke"}, data.smoke) : "", signs(own), legend(own));
  const plots = own.flatMap(q => q.answers.map(a => forestTable(q, a, shown)));
  const mine = found ? found.findings.filter(text => !/ (may be|is) best[;:]/.test(text) && own.some(q => text.includes(` ${q.family} `) || q.answers.some(a => text.includes(a.task)))) : [];
  const said = mine.length && !chosen.method && !words().length ? make("ul", {class: "findings", "aria-label": "what we found"}, ...mine.map(text => make("li", {}, text))) : "";
  node.replaceChildren(key, ...cards(own, shown),
    make("h2", {}, "How sure is that?"), make("p", {class: "lead"}, "Right is better. Bars, grey numbers: 95 % intervals. Filled: may be best. Hollow: shown to be worse. Square: not ranked. ▾: seen combinations."), make("div", {class: "plots"}, ...plots),
    ...(own.flatMap(q => q.answers).length > 1 ? [make("h2", {}, "All methods"), said, taskMatrix(own, found, shown)] : []), names(listed, own), costs(found, shown, own));
}
// Quality against cost of one family, chosen by the reader.
function costs(found, shown, questions) {
  const families = found ? found.families.filter(f => questions.some(q => q.family === f.name)) : [], side = make("div", {class: "side"});
  if (!families.length) return side;
  const family = families.find(f => f.name === picked.get("chart")) || families[0], index = found.families.indexOf(family);
  const ways = Object.keys(COSTS).filter(by => found.methods.some(m => m.cells[index]?.[by] > 0)), by = ways.includes(picked.get("by")) ? picked.get("by") : ways[0];
  const points = found.methods.filter(m => shown(m.method) && m.cells[index]?.[by] > 0).map(m => ({method: m.method, whole: isWhole(m.cells[index], family), ...m.cells[index]}));
  if (!points.length) return side;
  const choose = make("select", {"aria-label": "family of the chart", id: "chart-family"}, ...families.map(f => new Option(f.name, f.name, false, f === family)));
  choose.addEventListener("change", () => { picked.set("chart", choose.value); show(); $("chart-family")?.focus(); });
  const axis = make("select", {"aria-label": "what the chart calls cost", id: "chart-cost"}, ...ways.map(way => new Option(COSTS[way].title, way, false, way === by)));
  axis.addEventListener("change", () => { picked.set("by", axis.value); show(); $("chart-cost")?.focus(); });
  side.append(make("div", {class: "card"}, make("p", {class: "note"}, "Quality against ", axis, " in ", choose), paretoChart(family.name, points, by)));
  return side;
}
