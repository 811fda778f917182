"""The guides: links lead somewhere, both languages say the same, and they name the files that `tilegym new` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from _tilegym_cli.scaffold import render
from _tilegym_cli.signature import DEFAULTS, parse_signature

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "tilegym-adding-an-op" / "SKILL.md"
ENGLISH, FRENCH = ROOT / "docs" / "adding-an-op.md", ROOT / "docs" / "adding-an-op.fr.md"
GUIDES = [*sorted((ROOT / "docs").glob("*.md")), SKILL]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_links_lead_somewhere(guide):
    targets = re.findall(r"\]\(([^)#]+)", guide.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (guide.parent / target).exists()]
    assert missing == []


def test_both_languages_show_the_same_steps_and_code():
    texts = [guide.read_text(encoding="utf-8") for guide in (ENGLISH, FRENCH)]
    blocks = [re.findall(r"```\w+\n(.*?)```", re.sub(r" +#.*", "", text), re.DOTALL) for text in texts]
    assert blocks[0] == blocks[1]
    assert len(blocks[0]) == 5
    steps = [re.findall(r"^## \w+ (\d)", re.sub("Étape", "Step", text), re.MULTILINE) for text in texts]
    assert steps == [list("123456")] * 2


@pytest.mark.parametrize("guide", [ENGLISH, FRENCH, SKILL, ROOT / "CONTRIBUTING.md"], ids=lambda guide: guide.name)
def test_the_files_are_those_that_are_written(guide):
    example = parse_signature(DEFAULTS["elementwise"], "elementwise").context()
    files = render("op/elementwise", Path(), "my_op", example | {"name": "my_op", "label": "my_op"})
    named = set(re.findall(r"`((?:tests|tilegym-\w+)/[\w./-]*my_op\.py)`", guide.read_text(encoding="utf-8")))
    assert named <= {path.as_posix() for path in files}
    assert len(named) >= 4


def test_the_skill_says_what_it_is_for():
    front = re.match(r"---\nname: ([a-z-]+)\ndescription: ([^\n]{40,1024})\n---\n", SKILL.read_text(encoding="utf-8"))
    assert front is not None
    assert front[1] == SKILL.parent.name
