"""The page in a real browser: what it shows, how it filters, sorts and links, and that it asks for nothing elsewhere."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from support.cell_pictures import CELLS, written
from support.sample_records import png, record, score

from compbench.api.interfaces import CellCount
from compbench.board.notation import BARS
from compbench.board.site import rebuild
from compbench.registry.registry import Registry
from compbench.store.records import Store

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)

TASKS = ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy")
EVIL = "<img src=x onerror=alert(1)>"
SHARES = {"factored": 0.8, "mono": 0.6, "slice-cfg": 0.3}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of three tasks and three methods, an ablation, a reference, a failure and a method that ran one task only."""
    root = tmp_path_factory.mktemp("board")
    store = Store(root / "records")
    settings = {"task_settings": {"axis_bins": 10, "judge": "plain"}}
    for task in TASKS:
        for method, share in SHARES.items():
            for seed in range(3):
                value = round(share + 0.01 * seed, 3)
                counts = CellCount((0, 0), 500, 500), CellCount((0, 1), round(1000 * value) - 500, 500)
                heat = counts if counts[1].right >= 0 else ()
                seen = score("seen_accuracy", 0.9, by_cell=(CellCount((1, 0), 900, 1000),))
                scores = score(value=value, ceiling=0.99, by_cell=heat), seen
                made = record(*scores, task=task, method=method, seed=seed, **settings)
                store.write(made, {"samples.png": png(40, 20)} if seed == 0 else {})
        own = record(score(value=0.95, ceiling=0.99), task=task, method="oracle", more={"oracle": True}, **settings)
        store.write(own)
    for seed in range(3):
        store.write(
            record(score(value=round(0.7 + 0.01 * seed, 3)), method="factored", seed=seed, settings={"hidden": 128}, **settings)
        )
        store.write(record(score(value=round(0.5 + 0.01 * seed, 3)), task=TASKS[0], method="part", seed=seed, **settings))
    store.write(record(status="failed", method="broken", more={"reason": EVIL}, **settings))
    rebuild(store.folder, root / "site", link=True)
    return root / "site" / "index.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as own:
        yield own


@pytest.fixture
def page(site: Path, chromium: Browser) -> Browser:
    chromium.open(Path("/dev/null"))
    chromium.resize(1400, 900)
    chromium.open(site)
    return chromium


def texts(page: Browser, selector: str) -> list[str]:
    return page.run("return [...document.querySelectorAll(arguments[0])].map(node => (node.innerText ?? 'svg').trim())", selector)


def names(page: Browser, where: str) -> list[str]:
    return texts(page, f"{where} tbody th a")


def choose(page: Browser, key: str, value: str) -> None:
    page.run(
        "const s = document.getElementById('filter-' + arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))",
        key,
        value,
    )


def search(page: Browser, words: str) -> None:
    page.run(
        "const s = document.querySelector('input[type=search]'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        words,
    )


def test_the_first_screen_answers_each_question_with_a_picture(page: Browser) -> None:
    assert texts(page, ".question h3") == ["Shapes: ¼ of pairs unseen", "Shapes: ½ unseen", "Shapes: ¾ unseen"]
    assert texts(page, ".question:first-child tbody th") == ["factored"]
    assert texts(page, ".question:first-child tbody td:nth-child(3)") == ["81"]
    assert texts(page, ".question:first-child thead th") == ["% right", "TFLOP"]
    assert texts(page, ".question:first-child tfoot td")[1] == "99"
    assert texts(page, ".question:first-child td.price") == ["?"]  # these runs count no FLOPs: "cost not known", says its title
    assert page.run("return document.querySelector('td.price .term').title").startswith("cost not known")
    assert texts(page, ".question:first-child .named")[0].startswith("1/4 ")
    drawn = "return [...document.querySelectorAll('.question img')].map(i => i.naturalWidth > 0 && i.alt.includes('never seen'))"
    assert page.run(drawn) == [True] * 3
    dots = "return document.querySelectorAll('.question:first-child tbody tr:first-child circle').length"
    assert page.run(dots) == 3  # a dot a seed


def test_a_cell_is_filled_where_the_method_may_be_best_and_grey_where_it_is_shown_to_be_worse(page: Browser) -> None:
    assert names(page, ".matrix")[:4] == ["factored", "mono", "part", "slice-cfg"]
    assert names(page, ".matrix")[-1] == "oracle"
    row = "return [...document.querySelectorAll('.matrix tbody tr')].map(r => r.children[1].className)"
    assert page.run(row)[:3] == ["best", "worse", "worse"]
    assert page.run(row)[-1] == "reference"


def test_a_name_says_what_it_is_where_the_pointer_rests_and_in_the_legend(page: Browser) -> None:
    titles = page.run("return [...document.querySelectorAll('.question th a')].map(a => a.title)")
    assert all(re.match(r"factored: .{20,}", title) for title in titles)
    page.run("document.querySelector('#names').open = true")
    legend = dict(zip(texts(page, "#names dt"), texts(page, "#names dd"), strict=True))
    assert f"factored: {legend['factored']}" == titles[0]


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_nothing_of_the_first_screen_scrolls_sideways(page: Browser, width: int) -> None:
    page.resize(width, 860)
    wide = (
        "const cards = [...document.querySelectorAll('.question, .forests')];"
        "return [document.documentElement.scrollWidth - innerWidth, ...cards.map(c => c.scrollWidth - c.clientWidth)]"
    )
    assert set(page.run(wide)) == {0}


@pytest.fixture(scope="module")
def tabbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of one task at one site and one in ten silos."""
    root = tmp_path_factory.mktemp("tabs")
    store = Store(root / "records")
    for task in ("shapes3d-light", "cmnist-noniid"):
        known = Registry().load("tasks", task).settings.model_dump(mode="json")
        for method, share in SHARES.items():
            for seed in range(3):
                own = score(value=round(share + 0.01 * seed, 3), ceiling=0.99)
                store.write(record(own, task=task, method=method, seed=seed, task_settings=known))
    rebuild(store.folder, root / "site", link=True)
    return root / "site" / "index.html"


def test_one_site_and_silos_are_two_tabs_that_the_address_keeps(tabbed: Path, chromium: Browser) -> None:
    chromium.open(Path("/dev/null"))
    chromium.open(tabbed)
    assert texts(chromium, "[role=tab]") == ["One site", "Data in silos"]
    assert texts(chromium, ".question h3") == ["Shapes: ¼ of pairs unseen"]
    chromium.run("document.getElementById('tab-silos').click()")
    assert texts(chromium, ".question h3") == ["Digits in ten silos"]
    assert texts(chromium, "[aria-selected=true]") == ["Data in silos"]
    assert chromium.run("return location.hash") == "#tab=silos"
    chromium.open(tabbed, "#tab=silos")
    assert texts(chromium, ".question h3") == ["Digits in ten silos"]
    choose(chromium, "task", "shapes3d-light")  # a filter for the other tab leads there
    assert texts(chromium, ".question h3") == ["Shapes: ¼ of pairs unseen"]


def test_a_filter_brings_its_result_into_sight(page: Browser) -> None:
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.run("return scrollY") > 500
    choose(page, "method", "mono")
    assert page.run(
        "const r = document.getElementById('overview').getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight"
    )
    assert set(texts(page, ".question tbody th")) == {"mono"}


def test_two_methods_samples_stand_side_by_side(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    shown = "return [...document.querySelectorAll('.pair img')].map(i => i.alt.split(' ')[2])"
    assert page.run(shown) == ["factored", "mono"]
    page.run(
        "const s = document.querySelectorAll('.pair select')[1]; s.value = 'slice-cfg'; s.dispatchEvent(new Event('change'))"
    )
    assert page.run(shown) == ["factored", "slice-cfg"]


def test_a_search_finds_data_sets_papers_and_scores(page: Browser) -> None:
    for found in ("3dshapes", "FVF", "seen accuracy"):
        search(page, found)
        assert len(texts(page, "#tasks > details > summary b")) == 3, found


def test_a_filter_leaves_what_it_asks_for_and_nothing_else(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    assert texts(page, "#tasks summary b") == ["shapes3d-heavy"]
    assert texts(page, ".question h3") == ["Shapes: ¾ unseen"]
    assert page.run("return location.hash") == "#task=shapes3d-heavy"
    choose(page, "preset", "quick")
    choose(page, "method", "mono")
    assert names(page, "#tasks") == ["mono"]


def test_other_presets_and_settings_stand_below_until_someone_asks_for_them(tmp_path: Path, chromium: Browser) -> None:
    store = Store(tmp_path / "records")
    for preset in ("quick", "paper", "standard"):
        store.write(record(score(value=0.5), preset=preset, task_settings={"axis_bins": 10, "judge": "plain"}))
    store.write(record(score(value=0.5), preset="standard", task_settings={"axis_bins": 10, "judge": "pooled"}))
    rebuild(store.folder, tmp_path / "site", link=True)
    chromium.open(tmp_path / "site" / "index.html")
    assert texts(chromium, "#tasks > details > summary b") == ["shapes3d-heavy", "Other presets and settings"]
    assert chromium.run("return document.querySelector('#tasks > details').open")  # a board of few rows is opened at once
    assert "3 tables" in texts(chromium, "#tasks > details > summary")[1]
    chromium.run("document.querySelectorAll('#tasks > details')[1].open = true")
    assert len(texts(chromium, "#tasks details details > summary b")) == 3
    search(chromium, "shapes3d")
    assert len(texts(chromium, "#tasks > details > summary b")) == 4


def test_the_lattice_shows_how_many_samples_of_a_cell_are_right_of_any_method(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    shares = "return [...document.querySelectorAll('.heat rect.heat title')].map(node => node.textContent)"
    assert page.run(shares) == ["0, 0 held out: 100 % right", "0, 1 held out: 62 % right", "1, 0 seen: 90 % right"]
    assert texts(page, ".heat select option")[1] == "mono"
    page.run("const s = document.querySelector('.heat select'); s.value = 'mono'; s.dispatchEvent(new Event('change'))")
    assert page.run(shares)[1] == "0, 1 held out: 22 % right"


def test_a_cell_that_one_seed_holds_out_is_drawn_with_the_share_of_that_seed(tmp_path: Path, chromium: Browser) -> None:
    for seed in (0, 1):
        cells = (0, seed), (0, 1 - seed), (1, 0)  # each seed sees what the other one holds out
        own = score(value=0.5, by_cell=(CellCount(cells[0], 500, 1000),))
        seen = score("seen_accuracy", 0.9, by_cell=(CellCount(cells[1], 480, 500), CellCount(cells[2], 420, 500)))
        Store(tmp_path / "records").write(record(own, seen, seed=seed, task_settings={"axis_bins": 10, "judge": "plain"}))
    rebuild(tmp_path / "records", tmp_path / "site", link=True)
    chromium.open(tmp_path / "site" / "index.html")
    choose(chromium, "task", "shapes3d-heavy")
    drawn = "return [...document.querySelectorAll('.heat rect.heat title')].map(node => node.textContent)"
    assert chromium.run(drawn) == ["0, 0 held out: 50 % right", "0, 1 held out: 50 % right", "1, 0 seen: 84 % right"]
    assert "38 seen cells, 2 held out in at least one seed" in chromium.run(
        "return document.querySelector('.heat svg').getAttribute('aria-label')"
    )


def test_a_picture_is_said_to_be_what_it_is(tmp_path: Path, chromium: Browser) -> None:
    store = Store(tmp_path / "records")
    for task, settings in (("planning-noniid", {}), ("shapes3d-light", {"axis_bins": 10, "judge": "plain"})):
        plan = (
            score("heldout_success_rate", 51.4, ceiling=91.0, unit="%", primary=True)
            if task == "planning-noniid"
            else score(value=0.5, ceiling=0.99)
        )
        store.write(record(plan, task=task, task_settings=settings), {"samples.png": png(40, 20)})
    rebuild(store.folder, tmp_path / "site", link=True)
    chromium.open(tmp_path / "site" / "index.html")
    choose(chromium, "task", "planning-noniid")
    assert texts(chromium, "#tasks h3") == ["Plans: the path of the cube, from above"]
    assert "real 91.0" in texts(chromium, "#tasks table tbody td:nth-child(3) small")[0]
    choose(chromium, "task", "shapes3d-light")
    assert texts(chromium, "#tasks h3") == ["Samples: real above, generated for the same combination below"]


def test_search_finds_methods_and_tasks_and_says_when_nothing_is_there(page: Browser) -> None:
    search(page, "slice")
    assert names(page, ".matrix") == ["slice-cfg"]
    assert texts(page, "#methods summary b") == ["slice-cfg"]
    search(page, "shapes3d-medium")
    assert texts(page, "#tasks summary b") == ["shapes3d-medium"]
    search(page, "no such thing")
    assert texts(page, "#main .empty") == ["Nothing matches."]
    assert texts(page, "main svg, main table") == []


def test_every_table_sorts_by_every_score_and_keeps_the_focus(page: Browser) -> None:
    sort = (
        "[...document.querySelectorAll(arguments[0] + ' thead button')].find(b => b.textContent.startsWith(arguments[1])).click()"
    )
    page.run(sort, ".matrix", "shapes3d-light")
    page.run(sort, ".matrix", "shapes3d-light")
    assert names(page, ".matrix")[:4] == ["slice-cfg", "part", "mono", "factored"]
    choose(page, "task", "shapes3d-light")
    page.run(sort, "#tasks", "held-out accuracy")
    assert names(page, "#tasks")[:4] == ["factored", "mono", "part", "slice-cfg"]
    page.run(sort, "#tasks", "held-out accuracy")
    assert names(page, "#tasks")[:4] == ["slice-cfg", "part", "mono", "factored"]
    assert page.run("return document.activeElement.textContent").startswith("held-out accuracy")
    assert texts(page, "#tasks th[aria-sort=ascending]") != []


def test_ablations_are_folded_under_their_method(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    assert names(page, "#tasks").count("factored") == 1
    page.run("document.querySelector('#tasks .more[aria-expanded=false]').click()")
    assert names(page, "#tasks").count("factored") == 2
    assert page.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert len(texts(page, "#tasks tr.fold")) == 1


def test_columns_can_be_picked_and_five_are_shown_at_first(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    assert texts(page, "#tasks thead th")[2:-1] == [
        "held-out accuracy ↑ ★",
        "95 % interval →",
        "seen accuracy ↑",
        "training FLOPs",
        "FLOPs/sample",
        "parameters",
    ]
    page.run(
        "document.querySelector('details.columns').open = true;"
        "const labels = [...document.querySelectorAll('details.columns label')];"
        "labels.find(label => label.innerText.includes('steps/s')).querySelector('input').click()"
    )
    assert "training steps/s" in texts(page, "#tasks thead th")
    choice = "[...document.querySelectorAll('details.columns label')].find(l => l.innerText.trim() === arguments[0])"
    for name in ("median", "worst"):  # of 0.80, 0.81 and 0.82
        page.run(f"document.querySelector('details.columns').open = true; {choice}.querySelector('input').click()", name)
    heads = texts(page, "#tasks thead th")
    first = texts(page, "#tasks tbody tr:first-child > *")
    assert [first[heads.index(name)] for name in ("median", "worst")] == ["0.810", "0.800"]
    timed = "{columns: [], rows: [{timing: {samples: [null, '']}}, {timing: {samples: [9, '9']}}]}"
    assert page.run(f"return [...columnsOf({timed}).usual]") == ["trainFlops", "samples", "parameters"]


def test_links_lead_to_records_files_and_methods_that_are_there(page: Browser, site: Path) -> None:
    choose(page, "task", "shapes3d-heavy")
    found = page.run("return [...document.querySelectorAll('footer a, #tasks td a')].map(a => a.getAttribute('href'))")
    assert len(found) > 10
    assert [link for link in found if not (site.parent / link).is_file()] == []
    page.run("[...document.querySelectorAll('#tasks th a')].find(a => a.innerText === 'mono').click()")
    page.run("return new Promise(done => setTimeout(done, 100))")
    assert texts(page, "#methods summary b") == ["mono"]
    assert names(page, "#methods") == ["shapes3d-heavy", "shapes3d-light", "shapes3d-medium"]


def test_the_address_is_the_state_also_when_it_changes(page: Browser) -> None:
    page.run("location.hash = '#task=shapes3d-light'; return new Promise(done => setTimeout(done, 100))")
    assert texts(page, "#tasks summary b") == ["shapes3d-light"]
    assert page.run("return document.getElementById('filter-task').value") == "shapes3d-light"


def test_an_anchor_in_the_address_opens_the_whole_page(site: Path, chromium: Browser) -> None:
    chromium.open(Path("/dev/null"))
    chromium.open(site, "#tasks")
    assert names(chromium, ".matrix")[0] == "factored"
    assert len(texts(chromium, "#tasks summary b")) == 3


def test_the_head_of_a_task_says_where_the_chosen_method_stands_and_else_which_is_best(page: Browser) -> None:
    heads = "#tasks summary span:nth-of-type(2)"
    search(page, "mono")
    assert texts(page, heads) == ["factored 0.810"] * 3
    search(page, "")
    choose(page, "method", "mono")
    assert texts(page, heads) == ["mono 0.610, rank 2"] * 3
    page.run("document.querySelector('#tasks summary').click()")
    assert any(BARS in text for text in texts(page, "#tasks p.note"))


def test_a_preset_without_a_question_says_so(tmp_path: Path, chromium: Browser) -> None:
    store = Store(tmp_path / "records")
    for preset, settings in (("quick", {"axis_bins": 10, "judge": "plain"}), ("paper", {"axis_bins": 10, "judge": "pooled"})):
        store.write(record(score(value=0.5), preset=preset, task_settings=settings))
    rebuild(store.folder, tmp_path / "site", link=True)
    chromium.open(tmp_path / "site" / "index.html")
    choose(chromium, "preset", "paper")
    assert texts(chromium, "#overview *") == ["No question was run at preset paper; its boards stand below."]


def test_words_for_a_task_leave_the_methods_of_its_rows(page: Browser) -> None:
    search(page, "shapes3d-medium")
    assert "part" not in names(page, ".matrix")
    assert texts(page, "#count") == ["shown: 1 task, 4 methods"]
    search(page, "")
    assert texts(page, "#count") == [""]  # the head counts all tasks and methods


def test_an_interval_beyond_the_axis_ends_in_an_arrow_and_so_does_a_row(page: Browser) -> None:
    drawn = (
        "const svg = forest({kind: 'run', interval: arguments[0]}, [arguments[1]], {low: 0, high: 1, ceiling: null}, '');"
        "return [svg.querySelectorAll('polygon').length, svg.querySelectorAll('circle').length]"
    )
    assert page.run(drawn, [0.2, 0.8], 0.5) == [0, 1]
    assert page.run(drawn, [-2, 3], 0.5) == [2, 1]
    assert page.run(drawn, None, 4) == [1, 0]


def test_names_of_a_crowded_cost_chart_stay_apart_and_within_it(page: Browser) -> None:
    crowd = (
        "const points = [...Array(24)].map((_, k) => ({method: `method-${k}`, mean: .4 + k / 500, low: null, flops: 1e9,"
        "  cost: 'x', text: '', words: '', whole: true, state: k < 20 ? 'reference' : ''}));"
        "const figure = paretoChart('silos', points); document.body.append(figure);"
        "const box = node => { const b = node.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height, node.textContent]; };"
        "const found = [[...figure.querySelectorAll('text.name')].map(box), figure.querySelector('ul').innerText];"
        "figure.remove(); return found;"
    )
    boxes, legend = page.run(crowd)
    shown = [name for *_, name in boxes]
    assert {f"method-{k}" for k in range(20, 24)} <= set(shown)  # those that compete come first
    assert {f"method-{k}" for k in range(24)} - set(shown) == set(re.findall(r"method-\d+", legend))
    assert max(bottom for _, _, _, bottom, _ in boxes) <= 360 - 44
    for one, other in itertools.combinations(boxes, 2):
        assert not meet(one, other), (one, other)


def test_names_of_a_cost_chart_meet_no_dot_and_no_other_name(page: Browser) -> None:
    spread = (
        "const points = [...Array(24)].map((_, k) => ({method: `long-method-${k}`, mean: .1 + (k * 7 % 24) / 30, low: null,"
        "  flops: 10 ** (12 + (k * 5 % 8) / 4), cost: 'x', text: '', words: '', whole: true, state: ''}));"
        "const figure = paretoChart('silos', points); document.body.append(figure);"
        "const box = node => { const b = node.getBBox();"
        "  return [b.x, b.y + 2, b.x + b.width, b.y + b.height - 3, node.textContent]; };"
        "const found = ['text.name', 'circle'].map(what => [...figure.querySelectorAll(what)].map(box));"
        "figure.remove(); return found;"
    )
    shown, dots = page.run(spread)
    assert len(shown) > 18
    assert len(dots) == 24
    assert [pair for pair in itertools.combinations(shown, 2) if meet(*pair)] == []
    assert [(name, dot) for name in shown for dot in dots if meet(name, dot)] == []


def meet(one: list, other: list) -> bool:
    """Whether two boxes (left, top, right, bottom, name) meet by more than 4 pixels of line spacing."""
    return one[0] < other[2] and other[0] < one[2] and one[1] + 4 < other[3] and other[1] + 4 < one[3]


def test_faster_is_better_on_the_chart_of_samples_a_second(page: Browser) -> None:
    front = (
        "const points = [[.9, 1], [.5, 9], [.4, 5], [.8, 4]].map(([mean, rate], k) => ({method: `m${k}`, mean, rate, low: null,"
        "  cost: '', text: '', words: '', whole: true, state: ''}));"
        "const figure = paretoChart('silos', points, 'rate');"
        "const axis = [...figure.querySelectorAll('text')].map(t => t.textContent).find(t => t.includes('→'));"
        "return [axis, figure.querySelector('.front').getAttribute('points').split(' ').length]"
    )
    axis, corners = page.run(front)
    assert axis.startswith("samples/s")
    assert corners == 5  # three methods: m2 is slower and worse than m1


def test_tables_and_charts_have_names_for_those_who_do_not_see_them(page: Browser) -> None:
    choose(page, "task", "shapes3d-heavy")
    assert page.run("return [...document.querySelectorAll('table')].filter(t => !t.caption).length") == 0
    assert page.run("return [...document.querySelectorAll('th')].filter(t => !t.scope).length") == 0
    assert page.run("return [...document.querySelectorAll('main svg:not([aria-label])')].length") == 0
    assert page.run("return [...document.querySelectorAll('img')].filter(i => !i.alt && i.src).length") == 0
    assert any(
        "95 % interval 0." in label
        for label in page.run("return [...document.querySelectorAll('svg')].map(s => s.getAttribute('aria-label') || '')")
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(page: Browser, dark: bool) -> None:
    page.run("return document.documentElement.dataset")
    pairs = page.run(CONTRAST, dark)
    assert [(one, other, ratio) for one, other, ratio in pairs if ratio < 4.5] == []


CONTRAST = """
const rules = [...document.styleSheets[0].cssRules], root = rules.find(r => r.selectorText === ':root').style;
const night = [...rules.find(r => r.media && r.conditionText.includes('dark')).cssRules][0].style;
const value = name => ((arguments[0] && night.getPropertyValue(name)) || root.getPropertyValue(name)).trim();
const linear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
const light = name => {
  const h = value(name).slice(1), full = h.length === 3 ? [...h].map(c => c + c).join('') : h;
  const [r, g, b] = [0, 2, 4].map(i => linear(parseInt(full.slice(i, i + 2), 16) / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
const inks = ['--ink', '--soft', '--accent', '--bad', '--warm'], grounds = ['--page', '--card', '--raised'];
const pairs = inks.flatMap(ink => grounds.map(ground => [ink, ground, ratio(ink, ground)]));
const grey = ['--page', '--card'].map(ground => ['--pale', ground, ratio('--pale', ground)]);
return [...pairs, ...grey, ['--ink', '--best', ratio('--ink', '--best')]];
"""


def test_what_a_record_says_stays_text(page: Browser) -> None:
    choose(page, "method", "broken")
    page.run("document.querySelector('#tasks details.panel').open = true")
    assert any(EVIL in text for text in texts(page, "td.broken"))
    assert page.run("return document.querySelectorAll('td.broken img').length") == 0


def test_no_message_in_the_console_and_no_request_beyond_the_folder(page: Browser, site: Path) -> None:
    page.problems()
    page.requests()
    page.open(site)
    page.run("document.querySelectorAll('details.panel').forEach(panel => { panel.open = true })")
    page.run("return new Promise(done => setTimeout(done, 300))")
    assert page.problems() == []
    asked = page.requests()
    assert asked
    assert [url for url in asked if not url.startswith(site.parent.parent.as_uri())] == []


def test_the_front_page_draws_share_against_coverage_and_follows_the_filters(tmp_path: Path, chromium: Browser) -> None:
    store = Store(tmp_path / "records")
    known = Registry().load("tasks", "cmnist-diagonal").settings.model_dump(mode="json")
    for method, design, values in [
        ("mono", "orthotopic", (0.1, 0.4)),
        ("mono", "random", (0.2, 0.5)),
        ("factored", "orthotopic", (0.3, 0.9)),
    ]:
        for coverage, value in zip((0.19, 0.51), values, strict=True):
            settings = {**known, "coverage": coverage, "design": design}
            own = score(value=value, ceiling=0.99)
            store.write(record(own, task="cmnist-diagonal", task_settings=settings, method=method))
    rebuild(store.folder, tmp_path / "site", link=True)
    chromium.open(tmp_path / "site" / "index.html")
    assert texts(chromium, "#coverage h2") == ["How much of the lattice must be seen?"]
    dashes = "return [...document.querySelectorAll('#coverage polyline')].map(line => line.getAttribute('stroke-dasharray'))"
    assert sorted(chromium.run(dashes)) == ["5 4", "none", "none"]
    said = "return document.querySelector('#coverage svg').getAttribute('aria-label')"
    assert "factored, orthotopic: 0.30 at 0.19, 0.91 at 0.51" in chromium.run(said)
    choose(chromium, "method", "mono")
    assert sorted(chromium.run(dashes)) == ["5 4", "none"]
    search(chromium, "nothing of this kind")
    assert texts(chromium, "#coverage svg") == []
    store.write(record(score(value=0.5, ceiling=0.99), task_settings={"axis_bins": 10, "judge": "plain"}))
    rebuild(store.folder, tmp_path / "beside", link=True)
    chromium.open(tmp_path / "beside" / "index.html")
    assert len(texts(chromium, "#coverage polyline")) == 3


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of three methods whose runs kept every held-out cell; two of them kept a film."""
    root = tmp_path_factory.mktemp("tiles")
    for method in ("mono", "factored"):
        written(root, method)
    store = written(root, "cfg", steps=(1000,))
    rebuild(store.folder, root / "site", link=True)
    return root / "site" / "index.html"


def test_two_methods_stand_cell_by_cell_below_the_real_picture_and_a_film_along_training(chromium: Browser, tiled: Path) -> None:
    chromium.open(Path("/dev/null"))
    chromium.resize(1400, 900)
    chromium.open(tiled, "#task=shapes3d-light")
    labels = "return [...document.querySelectorAll('.cell')].map(c => c.getAttribute('aria-label'))"
    assert len(chromium.run(labels)) == len(CELLS)
    assert all("real" in text and "cfg" in text and "factored" in text for text in chromium.run(labels))
    assert chromium.run("return [...document.querySelectorAll('.cell')].map(c => c.querySelectorAll('.tile').length)") == [3] * 3
    left = "const s = document.querySelector('.body select[aria-label^=left]'); s.value = 'mono';"
    chromium.run(left + "s.dispatchEvent(new Event('change'))")
    assert all("real, mono, factored" in text for text in chromium.run(labels))
    colours = """const tile = document.querySelectorAll('.cell')[2].querySelectorAll('.tile')[arguments[0]];
        const style = getComputedStyle(tile);
        return [style.backgroundPosition, style.backgroundSize, style.backgroundImage.includes('heldout-1.png')]"""
    # the third of three cells in two columns: the first column of the second block, whose real row is the third of four
    assert chromium.run(colours, 0)[0].split()[0] in ("0px", "-0px")
    assert [float(chromium.run(colours, place)[0].split()[1].removesuffix("px")) for place in (0, 1)] == pytest.approx(
        [-2 * 56 * 4 / 6, -3 * 56 * 4 / 6], abs=0.1
    )
    assert chromium.run(colours, 1)[2]
    assert texts(chromium, ".film thead th") == ["method", "real", "step 250", "step 500", "step 1,000"]
    assert len(texts(chromium, ".film tbody tr")) == 2
    assert "75 % right" in texts(chromium, ".film tbody td")[-1]
    assert chromium.problems() == []
