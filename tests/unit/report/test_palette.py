"""Arms can be told apart: by contrast with the ground, under colour-blindness, and by marker and dash."""

import itertools

import numpy as np
import pytest

from reckoning.report.palette import COLOURS, MARKERS, ArmLook, looks

GROUNDS = ("#ffffff", "#14171b")
# Machado, Oliveira and Fernandes 2009, severity 1.0, linear RGB.
DEFICIENCIES = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2 contrast ratio."""
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    ratio = xyz / [0.9505, 1.0, 1.089]
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", [0, 1])
def test_every_colour_has_the_contrast_that_graphics_need(theme):
    # WCAG 2.2, 1.4.11: 3:1 for graphical objects.
    for pair in COLOURS:
        assert contrast(pair[theme], GROUNDS[theme]) >= 3


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("kind", DEFICIENCIES)
def test_colours_stay_apart_for_the_colour_blind(theme, kind):
    seen = [lab(np.array(DEFICIENCIES[kind]) @ linear(pair[theme])) for pair in COLOURS]
    distances = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(range(len(COLOURS)), 2)}
    # A just noticeable difference is about 2.3; lines and small marks need several of them.
    assert min(distances.values()) >= 15, min(distances, key=distances.get)


def test_no_two_of_88_arms_look_alike():
    seen = {(look.colour_index, look.marker) for look in map(ArmLook, range(88))}
    assert len(seen) == 88 == len(COLOURS) * len(MARKERS)


def test_look_depends_on_the_place_in_the_plan_alone():
    whole, part = looks(["a", "b", "c"]), looks(["a", "b", "c", "d"])
    assert all(whole[slug] == part[slug] for slug in "abc")
    assert looks(["a", "b", "a"]).keys() == {"a", "b"}
