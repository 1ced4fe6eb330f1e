"""The selector's report from stored sweeps, here synthetic ones."""

import json

import pytest

from tri_reduce import cli, configs, evaluation
from tri_reduce.problem import describe
from tri_reduce.targets import H200

SHAPE = [8192, 8192]


def emitted(shape=SHAPE):
    problem = describe("sum", shape, 1, "fp32")
    return list(dict.fromkeys(evaluation.coordinates(problem, t) for t in configs.candidates(problem, H200)))


def sweep(us, family="known", shape=SHAPE):
    """A sweep of one problem: microseconds by coordinates."""
    tiles = [[*at, t] for at, t in us.items()]
    record = {"family": family, "op": "sum", "shape": shape, "dim": 1, "dtype": "fp32", "trans": False, "tiles": tiles, "failed": []}
    columns = ["x", "r0", "r1", "split", "warps", "ahead", "unroll", "us"]
    return {"meta": {"target": "h200", "kept_out": ["other"]}, "columns": columns, "problems": {"p": record}}


def test_losses_are_against_the_best_of_all_tiles_measured():
    found = emitted()
    us = dict.fromkeys(found, 20.0) | {found[0]: 15.0, found[1]: 11.0, (1, 16, 1, 1, 1, 1, 0): 10.0}
    (judged,) = evaluation.judge(sweep(us))
    assert judged.first == pytest.approx(0.5) and judged.best == pytest.approx(0.1)
    assert judged.winner == (1, 16, 1, 1, 1, 1, 0) and judged.missing == () and judged.emitted == tuple(found)


def test_at_snap_2_a_candidate_stands_for_the_tiles_within_2x_of_it():
    first, *_ = found = emitted()
    x, r0, r1, split, warps, ahead, unroll = max(found, key=lambda c: c[1])
    near = (x, r0 * 2, r1, split, warps, ahead, unroll)
    assert near not in found
    (judged,) = evaluation.judge(sweep(dict.fromkeys(found, 20.0) | {near: 10.0}))
    assert judged.best == pytest.approx(1.0) and judged.best_near == 0
    (judged,) = evaluation.judge(sweep({first: 20.0, (x, r0 * 4, r1, split, warps, ahead, unroll): 10.0}))
    assert judged.best_near == pytest.approx(1.0)


def test_candidates_that_a_sweep_lacks_are_counted_and_not_judged():
    first, second, *others = emitted()
    (judged,) = evaluation.judge(sweep({second: 10.0}))
    assert judged.first is None and judged.best == 0 and set(judged.missing) == {first, *others}
    groups = evaluation.report([judged])
    assert groups["all"]["first not measured"] == 1 and groups["all"]["not measured"] == len(others) + 1


def test_candidates_that_cannot_be_compiled_are_not_missing():
    first, *others = emitted()
    data = sweep(dict.fromkeys(others, 10.0))
    data["problems"]["p"]["failed"] = [[*first, "out of registers"]]
    assert evaluation.judge(data)[0].missing == ()


def test_candidates_are_those_of_the_rules_as_they_stand(monkeypatch):
    data = sweep(dict.fromkeys(emitted(), 10.0))
    monkeypatch.setattr(configs, "candidates", lambda p, t, apart: (configs.Tile("rows", 1, 64),))
    (judged,) = evaluation.judge(data)
    assert judged.emitted == judged.missing == ((1, 64, 1, 1, 4, 1, 0),)


def test_families_kept_out_are_told_from_those_that_rules_were_fitted_on():
    us = dict.fromkeys(emitted(), 10.0)
    found = evaluation.judge(sweep(us)) + evaluation.judge(sweep(us, "other"))
    groups = evaluation.report(found)
    assert (groups["all"]["problems"], groups["fit"]["problems"], groups["kept out"]["problems"]) == (2, 1, 1)
    assert {"known", "other", "regime rows"} < set(groups)


@pytest.mark.parametrize("name", evaluation.COEFFICIENTS)
def test_a_perturbed_coefficient_is_put_back_even_after_an_error(name):
    module = evaluation.COEFFICIENTS[name]
    value = getattr(module, name)
    with pytest.raises(KeyError), evaluation.perturbed(name, 0.5):
        assert getattr(module, name) != value or value == 1
        raise KeyError
    assert getattr(module, name) == value


@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("name", evaluation.COEFFICIENTS)
def test_candidates_stay_legal_whatever_coefficient_moves(name, factor):
    with evaluation.perturbed(name, factor):
        for op, shape, dim in (
            ("sum", (8192, 50257), 1),
            ("sum", (401408, 64), 0),
            ("var", (32, 64, 56, 56), (0, 2, 3)),
            ("sum", (9999, 8), 1),
        ):
            problem = describe(op, shape, dim, "bf16")
            for tile in configs.candidates(problem, H200):
                assert all(isinstance(n, int) and n >= 1 for n in (tile.x, tile.r0, tile.r1, tile.split, tile.warps))
                assert all(n & (n - 1) == 0 for n in (tile.x, tile.r0, tile.r1, tile.warps))


def test_the_command_prints_a_table_or_json(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(sweep(dict.fromkeys(emitted()[1:], 10.0))))
    assert cli.main(["eval", "--data", str(path), "--perturb"]) == 0
    text = capsys.readouterr().out
    assert "best of list" in text and "1 candidates not measured" in text and "TILE_BYTES x 0.5" in text
    assert cli.main(["eval", "--data", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"]["all"]["problems"] == 1


def test_the_command_tells_of_each_family_while_it_judges_and_json_stays_alone(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(sweep(dict.fromkeys(emitted(), 10.0))))
    assert cli.main(["eval", "--data", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) and err.splitlines() == ["[1/2] new known: 1 problems", "[2/2] as shipped, known: 1 problems"]


def test_problems_are_judged_without_the_table_with_the_others_or_with_themselves(monkeypatch):
    timed = evaluation.load(evaluation.DEFAULT)
    key = "sum 64x401408 1 fp32"
    data = {**timed, "problems": {key: timed["problems"][key]}}
    asked = []
    monkeypatch.setattr(configs, "candidates", lambda p, t, apart: asked.append((t.timed, apart)) or (configs.Tile("rows", 1, 64),))
    for which in ("none", "others", "all"):
        evaluation.judge(data, which)
    assert asked == [("", {key}), ("h200", {key}), ("h200", frozenset())]


def test_figures_are_drawn_where_matplotlib_is(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(sweep(dict.fromkeys(emitted(), 10.0))))
    assert cli.main(["eval", "--data", str(path), "--out", str(tmp_path / "out")]) == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"selector.json", "selector_losses.png", "selector_winners.png"}


@pytest.mark.parametrize("text", [None, "{", "[]", '{"meta": {}}'])
def test_a_file_that_is_no_sweep_is_one_line_and_status_2(tmp_path, capsys, text):
    path = tmp_path / "none.json"
    if text is not None:
        path.write_text(text)
    assert cli.main(["eval", "--data", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
