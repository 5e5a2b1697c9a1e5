"""docs/rules.md lists every rule as the registry has it."""

from reckoning.plan.rules import REGISTRY, document


def test_the_table_is_the_registry():
    text = document.DOCUMENT.read_text(encoding="utf-8")
    assert document.updated(text) == text, "run python -m reckoning.plan --rules"
    for rule in REGISTRY.values():
        assert f"| `{rule.id}` | {rule.level} |" in text


def test_the_table_is_renewed_in_place():
    text = f"before\n{document.BEGIN}\noutdated words\n{document.END}\nafter\n"
    renewed = document.updated(text)
    assert renewed.startswith("before\n")
    assert renewed.endswith("\nafter\n")
    assert "outdated words" not in renewed
    assert "ep-divides-tp" in renewed
