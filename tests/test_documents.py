"""The documents: short where they promise it, and true where a machine can tell."""

import re
from fnmatch import filter as matching
from pathlib import Path

from click import Group

from compbench.cli.main import main
from compbench.registry.declared import by_family
from compbench.registry.registry import Registry
from compbench.testing.verdicts import CLAUSES

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"^pip install .*&&", re.MULTILINE)


def test_the_readme_is_one_screen_after_another_and_no_wall() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 110
    assert len(text.split()) <= 900, "README.md has 900 words at most: take out as many as you add, or write into docs/"
    assert [line for line in text.splitlines() if len(line) > 100 and not COMMAND.match(line)] == []


def test_the_families_of_the_readme_are_those_that_the_tasks_name() -> None:
    table = re.findall(
        r"^\| ([a-z, ]+) \| ((?:`[\w*-]+`(?:, )?)+) \|[^|]+\|[^|]+\|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    families = {name: {entry.name for entry in own} for name, own in by_family(Registry().entries("tasks")).items()}
    assert {name for names, _ in table for name in names.split(", ")} == families.keys() - {"others"}
    for names, patterns in table:
        known = set().union(*(families[name] for name in names.split(", ")))
        asked = {
            task for own in families.values() for pattern in re.findall(r"`([^`]+)`", patterns) for task in matching(own, pattern)
        }
        assert asked
        assert asked <= known, names


def test_the_readme_says_which_of_its_tasks_the_board_lacks() -> None:
    text = (ROOT / "README.md").read_text()
    table = text.split("| family | tasks |")[1].split("\n\n")[0]
    patterns = [pattern for row in table.splitlines() for pattern in re.findall(r"`([^`]+)`", row)]
    published = {path.name.split(".")[0] for path in (ROOT / "leaderboards" / "records").glob("*.json")}
    lacking = [pattern for pattern in patterns if not matching(published, pattern)]
    (sentence,) = re.findall(r"^The board lacks (.*)\.$", text, re.MULTILINE)
    assert sorted(re.findall(r"`([^`]+)`", sentence)) == sorted(lacking), "name in it the tasks that have no record"


def test_contributing_is_seventy_lines() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 75


def test_every_link_of_a_document_leads_somewhere() -> None:
    broken = [
        f"{path.name}: {link}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text())
        if not link.startswith("http") and not (path.parent / link).exists()
    ]
    assert broken == []


def test_every_verb_that_the_readme_names_is_there_and_none_is_left_out() -> None:
    table = (ROOT / "README.md").read_text().split("| to | verbs |")[1].split("\n\n")[0]
    assert isinstance(main, Group)
    named = set(re.findall(r"`([a-z]+)`", table))
    assert named >= set(main.commands) - {"plugins"}
    assert named - set(main.commands) <= {"doctor"}


def test_docs_hold_text_and_pictures_only() -> None:
    assert {path.suffix for path in (ROOT / "docs").rglob("*") if path.is_file()} <= {".md", ".png", ".svg"}


QUAINT = re.compile(r"\b(mend(s|ed)?|anew|nobody|thrice|warden|crew|testimony|somebody)\b", re.IGNORECASE)


def test_what_people_read_is_plain_present_day_english() -> None:
    written = [*(ROOT / "compbench").rglob("*.py"), *(ROOT / "compbench").rglob("*.jinja"), *ROOT.glob("*.md")]
    written += [*(ROOT / "docs").glob("*.md"), *(ROOT / "plugins").rglob("compbench_*/*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in written
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if QUAINT.search(line)
    ]
    assert found == []


def test_the_page_for_authors_names_every_field_that_a_method_is_given() -> None:
    from dataclasses import fields

    from compbench.api.context import Context
    from compbench.api.interfaces import Method, Problem, Request

    page = (ROOT / "docs" / "plugins.md").read_text()
    names = [field.name for kind in (Problem, Context, Method) for field in fields(kind)] + list(Request._fields)
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


def test_each_clause_of_the_contract_has_its_smallest_wrong_example() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "contract.md").read_text(), flags=re.MULTILINE)[1:]
    assert {section.split("\n")[0] for section in sections} == set(CLAUSES)
    assert [section.split("\n")[0] for section in sections if "*Wrong:* " not in section] == []


def test_readme_has_the_two_commands_that_newcomers_and_ci_run() -> None:
    commands = re.findall(r"^ *(pip install .*&& .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    plugins = "-e plugins/compbench-methods"
    assert commands[0] == f"pip install -e . {plugins} && compbench run --method factored --task shapes3d-heavy"
    assert commands[-1] == f'pip install -e ".[test]" {plugins} -e plugins/compbench-example && pytest'
