"""Half a character, which no UTF-8 can hold, is refused where it is written, by the name of its field."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from actors import Agent, File, Image, Pinned, Prompt, Selection, Text, tool
from actors.content import as_content, check_text
from actors.errors import UsageError
from actors.output import output_spec
from actors.results import Output

HALF = "\ud83d"


def documented(doc: str, **names: Any) -> Any:
    """A function, or class, with a docstring that is made up."""

    def look(path: str = names.get("default", "")) -> str:
        return path

    look.__doc__ = doc
    return look


@attrs.frozen
class Verdict:
    """What a review comes to."""

    score: int


Verdict.__doc__ = f"What a review {HALF} comes to."

SPECS: dict[str, tuple[Callable[[], object], str]] = {
    "name": (lambda: Agent("a" + HALF), "the agent name"),
    "instructions": (lambda: Agent("a", "Be" + HALF), "agent 'a': instructions="),
    "prompt": (lambda: Prompt("Be" + HALF), r"Prompt\(text="),
    "version": (lambda: Prompt("Be", HALF), r"Prompt\(version="),
    "model": (lambda: Agent("a", model=["openai:m", "openai:" + HALF]), "agent 'a': model="),
    "effort": (lambda: Agent("a", effort=HALF), "agent 'a': effort="),
    "tier": (lambda: Agent("a", tier=HALF), "agent 'a': tier="),
    "docstring": (lambda: tool(documented("Look" + HALF)), "tool 'look': its description"),
    "description": (lambda: tool(documented("Look"), description=HALF), "tool 'look': its description"),
    "parameter": (lambda: tool(documented(f"Look.\n\nArgs:\n    path: of {HALF}")), "tool 'look', parameter 'path'"),
    "default": (lambda: tool(documented("Look", default=HALF)), "tool 'look', parameter 'path'"),
    "output": (lambda: Agent("a", output=Verdict), "agent 'a', output="),
    "asked": (lambda: output_spec(Verdict, "output="), "output="),
    "selection": (lambda: Selection(model=HALF), r"Selection\(model="),
}
CONTENTS: dict[str, tuple[object, str]] = {
    "text": ("so " + HALF, "^a message is text .* at 3 of 4"),
    "Text": (Text(HALF), r"^a message: Text\(text="),
    "list": (["whole", HALF], "^a message"),
    "pinned": (Pinned(HALF), "^a message"),
    "file": (File(HALF, "text/plain", "eA=="), r"^a message: File\(name="),
    "image": (Image("image/png", url="http://x/" + HALF), r"^a message: Image\(url="),
}


@pytest.mark.parametrize("field", SPECS)
def test_a_spec_with_half_a_character_is_refused_by_the_name_of_its_field(field: str) -> None:
    """Nothing deep inside meets it: not the digest, not the schema's compiler, not a request."""
    make, said = SPECS[field]
    with pytest.raises(UsageError, match=said) as caught:
        make()
    assert "\\ud83d" in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("kind", CONTENTS)
def test_acc_2_content_with_half_a_character_is_refused_by_the_name_of_its_part(kind: str) -> None:
    """What a model could only be sent mended is not taken for what was written."""
    content, said = CONTENTS[kind]
    with pytest.raises(UsageError, match=said):
        as_content(content)


def test_whole_characters_of_every_kind_are_taken() -> None:
    """Only halves are refused: an emoji, a letter of an old script, and a NUL are whole."""
    for text in ("😀", "𐎀", "é", "\x00", "", "\uffff"):
        check_text(text, "it")
        assert as_content(text) == (Text(text),)


def test_tol_6_a_result_with_half_a_character_is_shown_mended() -> None:
    """It comes from where a tool looked, such as a file's name that is no UTF-8: the model reads it all the same."""
    output = Output("look")
    for value in ("a" + HALF, ["a" + HALF, Text(HALF)], Text("a" + HALF), [File("a" + HALF, "text/plain", "eA==")]):
        shaped = output.shape(value, 1_000)
        assert not shaped.error
        assert r"a\ud83d" in repr(shaped.content).replace("\\\\", "\\")
        repr(shaped.content).encode()
        for part in shaped.content:
            as_content(part)
