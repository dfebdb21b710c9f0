"""The HTML page of a diagnosis: the run, the scores next to the ideal points, the layers, the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment

from compbench.diagnose.summary import Summary, shown

if TYPE_CHECKING:
    from compbench.api.schemas import Record

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<title>{{ spec.method }} on {{ spec.task }}: diagnostics</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } img { max-width: 100%; margin: .5em 0 } .note { color: #555 }
</style></head><body>
<h1>{{ spec.method }} on {{ spec.task }}</h1>
<p class="note">preset {{ spec.preset }}, seed {{ spec.seed }}, {{ spec.budget.train_steps }} steps;
run {{ record.identity[:12] }}.
Grid of {{ factors[0] }} and {{ factors[1] }}, other factors in their middle, one noise for all cells.</p>
<h2>Is a held-out output a superposition of seen ones?</h2>
<table><tr><th></th><th>superposition score</th>
<th>kernel: held out x seen</th><th>held out x held out</th><th>compositional</th></tr>
{% for name, each in found.scores.items() %}
<tr><td>{{ name }}</td><td>{{ each.superposition|number }}</td>
{% for value in (each.seen, each.heldout, each.compositional) %}<td>{{ value|number }}</td>{% endfor %}</tr>
{% endfor %}</table>
<p class="note">Score: cosine with the mean of seen outputs that share {{ factors[0] }}
plus that of those that share {{ factors[1] }}.
Kernels: centred alignment of the outputs' cosine kernel
with (same {{ factors[0] }} + same {{ factors[1] }}) / 2, and with the product.
{% if not found.has_truth %}The mean of all seen outputs was subtracted first.{% endif %}</p>
<h2>Layers</h2>
{% if found.why_no_layers %}<p>{{ found.why_no_layers }}</p>{% else %}
<table><tr><th>layer</th><th>factorisation</th><th>pointwise</th><th>normalised</th>
<th>log10 volume seen</th><th>held out</th><th>spread</th>
<th>probe {{ factors[0] }} seen</th><th>held out</th><th>probe {{ factors[1] }} seen</th><th>held out</th></tr>
{% for layer in found.layers %}
<tr><td>{{ layer.name }}</td>{% for _, value in layer.factorisation %}<td>{{ value|number }}</td>{% endfor %}
<td>{{ layer.log_volume_seen|number }}</td><td>{{ layer.log_volume_heldout|number }}</td>
<td>{{ layer.log_volume_spread|number }}</td>
{% for pair in layer.probe %}{% for value in pair %}<td>{{ value|number }}</td>{% endfor %}{% endfor %}</tr>
{% endfor %}</table>
<p class="note">Derivatives by
{% if found.derivative == "jvp" %}forward-mode differentiation{% else %}differences between neighbouring cells (the model takes
integer conditions only; of unordered values they depend on the order){% endif %}.
Factorisation is 1 if the factors move a layer in orthogonal directions, 1/2 (normalised: 0) if in the same one.
Probes are fitted on seen cells. A dash is a number that is undefined: with one held-out cell, or with one
value of a factor among the held-out cells, there is no spread to explain and no kernel to centre.</p>
{% endif %}
{% if found.effective_rank %}<p>Mean effective rank of the rendered maps:
{% for name, ranks in found.effective_rank.items() %}{{ name }} {{ (ranks|sum / ranks|length)|number }}
{{- "." if loop.last else ", " }}{% endfor %}</p>{% endif %}
{% for name in found.figures %}<h2>{{ name }}</h2><img src="{{ name }}.png" alt="{{ name }}">
{% endfor %}</body></html>
"""


def page(record: Record, found: Summary) -> str:
    """Return the HTML; the figures are files next to it."""
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["number"] = shown
    return environment.from_string(TEMPLATE).render(record=record, spec=record.spec, factors=found.factors, found=found)
