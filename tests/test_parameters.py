"""Parameters as people write them: each form gives its value, and what is wrong is said with the right form."""

import shlex

import pytest

from gdd.base.checks import GddError
from gdd_book.parameters import parse, written

KNOWN = {"n": 5, "noise": 0.5, "stop": False, "sizes": (100, 200), "noises": [2.0, 44.0], "data": "digits",
         "kinds": ("raw pixels", "k-means"), "learned": (True, False)}


@pytest.mark.parametrize(("words", "value"), [
    (["n=7"], 7), (["n", "=", "7"], 7), (["n", "1e3"], 1000), (["n", "9007199254740993"], 9007199254740993),
    (["noise", "3"], 3.0), (["stop", "FALSE"], False), (["data", "mnist"], "mnist"),
    (["sizes", "1", "2"], (1, 2)), (["sizes", "(1,2)"], (1, 2)), (["sizes", "[1,", "2]"], (1, 2)),
    (["sizes", "1, 2,"], (1, 2)), (["sizes", "1 2"], (1, 2)), (["sizes", "7"], (7,)), (["sizes", "(7)"], (7,)),
    (["noises=0.3", "1.0"], [0.3, 1.0]), (["learned", "True,false"], (True, False)),
    (["kinds", "raw pixels", "k-means"], ("raw pixels", "k-means")),
    (["kinds", "['raw pixels', \"a, b\"]"], ("raw pixels", "a, b")), (["kinds", "[the paper's]"], ("the paper's",)),
])
def test_forms_that_are_read(words, value):
    found = parse("toy", KNOWN, [words])[words[0].partition("=")[0]]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(("words", "said"), [
    (["n"], "parameter n: no value given, a whole number needed, such as -p n 5"),
    (["n", "1.5"], "'1.5' given, a whole number"), (["n", "1,000"], "'1,000' given"), (["n", "1e999"], "given"),
    (["noise", "nan"], "'nan' given"), (["stop", "1"], "'1' given, true or false needed, such as -p stop False"),
    (["sizes", "1,,2"], "'1,,2' given, whole numbers needed, such as -p sizes 100 200"),
    (["sizes", "[[1, 2]]"], "given, whole numbers"), (["sizes", "[]"], "given, whole numbers"),
    (["learned", "true,maybe"], "'true,maybe' given, true or false each needed"),
    (["sise", "1"], "no parameter sise (nearest: sizes); it has"), (["=", "1"], "no parameter =; it has"),
])
def test_what_is_wrong_is_said_with_the_right_form(words, said):
    with pytest.raises(GddError) as error:
        parse("toy", KNOWN, [words])
    assert said in str(error.value)


def test_what_is_written_is_read():
    for name, value in KNOWN.items():
        assert parse("toy", KNOWN, [[name, *shlex.split(written(value))]]) == {name: value}
