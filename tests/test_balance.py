"""The order in which workers get the tests."""

from support.balance import LONG, balanced


def test_each_worker_begins_with_an_equal_share_of_the_long_files_and_ends_with_short_ones() -> None:
    files = [name for name in ("test_a.py", *LONG, "test_b.py") for _ in range(9 if name in LONG else 200)]
    order = balanced(files, 3)
    assert sorted(order) == list(range(len(files)))
    size = len(files) // 3
    blocks = [[files[place] for place in order[k * size : (k + 1) * size]] for k in range(3)]
    for block in blocks:
        is_long = [name in LONG for name in block]
        assert is_long == sorted(is_long, reverse=True)
    seconds = [sum(LONG[name] for name in {*block} & LONG.keys()) for block in blocks]
    assert sum(seconds) == sum(LONG.values())
    assert max(seconds) - min(seconds) <= 5


def test_few_tests_are_all_kept_whatever_the_number_of_workers() -> None:
    for files in ([], ["test_a.py"], ["test_sides.py"] * 7 + ["test_a.py"]):
        assert sorted(balanced(files, 3)) == list(range(len(files)))
