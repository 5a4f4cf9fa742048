"""Parameters as people write them: each form gives its value, and what is wrong is said with the right form."""

import shlex

import pytest

from gdd.base.checks import GddError
from gdd_book.parameters import parse, written

KNOWN = {"n": 5, "noise": 0.5, "stop": False, "sizes": (100, 200), "noises": [2.0, 44.0], "data": "digits",
         "kinds": ("raw pixels", "k-means"), "learned": (True, False)}


@pytest.mark.parametrize(("words", "value"), [
    (["n", "7"], 7), (["n=7"], 7), (["n", "=", "7"], 7), (["n", "1e3"], 1000), (["n", "5.0"], 5),
    (["n", "9007199254740993"], 9007199254740993), (["noise", "1e-2"], 0.01), (["noise=.5"], 0.5),
    (["noise", "3"], 3.0),
    (["stop", "true"], True), (["stop", "FALSE"], False), (["data", "mnist"], "mnist"), (["data=mnist"], "mnist"),
    (["sizes", "1,2"], (1, 2)), (["sizes", "1", "2"], (1, 2)), (["sizes", "[1, 2]"], (1, 2)), (["sizes", "(1,2)"],
    (1, 2)),
    (["sizes", "[1,", "2]"], (1, 2)), (["sizes", "1, 2,"], (1, 2)), (["sizes", "1 2"], (1, 2)), (["sizes=1,2"], (1, 2)),
    (["sizes", "7"], (7,)), (["noises", "0.3", "1.0"], [0.3, 1.0]), (["noises=0.3", "1.0"], [0.3, 1.0]),
    (["noises", "[2, 2]"], [2.0, 2.0]), (["learned", "True,false"], (True, False)), (["learned", "[True]"], (True,)),
    (["kinds", "raw pixels", "k-means"], ("raw pixels", "k-means")), (["kinds", "raw pixels,k-means"],
    ("raw pixels", "k-means")),
    (["kinds", "['raw pixels', \"a, b\"]"], ("raw pixels", "a, b")), (["kinds", "[k-means]"], ("k-means",)),
    (["kinds", "the paper's", "k-means"], ("the paper's", "k-means")), (["kinds", "[the paper's]"], ("the paper's",)),
    (["sizes", "(7)"], (7,)),
])
def test_forms_that_are_read(words, value):
    found = parse("toy", KNOWN, [words])[words[0].partition("=")[0]]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(("words", "said"), [
    (["n"], "parameter n: no value given, a whole number needed, such as -p n 5"), (["n="], "no value given"),
    (["n", "1.5"], "'1.5' given, a whole number"), (["n", "ten"], "'ten' given"), (["n", "1,000"], "'1,000' given"),
    (["n", "1", "2"], "'1 2' given, a whole number"), (["n", "[7]"], "given, a whole number"),
    (["n", "1e999"], "given"),
    (["noise", "0,5"], "'0,5' given, a number needed, such as -p noise 0.5"), (["noise", "nan"], "'nan' given"),
    (["stop", "1"], "'1' given, true or false needed, such as -p stop False"),
    (["data"], "no value given, a word needed"),
    (["sizes", "1,,2"], "'1,,2' given, whole numbers needed, such as -p sizes 100 200"),
    (["sizes", "2x2"], "'2x2' given"),
    (["sizes", "[[1, 2]]"], "given, whole numbers"), (["sizes", "[]"], "given, whole numbers"), (["sizes"], "no value"),
    (["noises", "0.3,", "x"], "'0.3, x' given, numbers needed, such as -p noises 2.0 44.0"),
    (["learned", "true,maybe"], "'true,maybe' given, true or false each needed"),
    (["m", "1"], "toy has no parameter m; it has n, noise"),
    (["sise", "1"], "no parameter sise (nearest: sizes); it has"),
    (["NOISE", "1"], r"no parameter NOISE (nearest: noise)"), (["=", "1"], "no parameter =; it has"),
])
def test_what_is_wrong_is_said_with_the_right_form(words, said):
    with pytest.raises(GddError) as error:
        parse("toy", KNOWN, [words])
    assert said in str(error.value)


def test_a_parameter_is_given_once():
    with pytest.raises(GddError, match="parameter n: given twice; write each -p NAME once"):
        parse("toy", KNOWN, [["n", "1"], ["noise", "2"], ["n=1"]])


def test_what_is_written_is_read():
    for name, value in KNOWN.items():
        assert parse("toy", KNOWN, [[name, *shlex.split(written(value))]]) == {name: value}
