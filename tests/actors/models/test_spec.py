import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import UsageError
from actors.models.spec import ModelSpec, parse_model


@pytest.mark.parametrize(
    ("text", "name", "base_url", "loopback"),
    [
        ("openai-chat:gpt-5-mini", "gpt-5-mini", "https://api.openai.com/v1", False),
        ("openai-chat:qwen3:8b@http://127.0.0.1:11434/v1", "qwen3:8b", "http://127.0.0.1:11434/v1", True),
        ("openai-chat:m@http://localhost:8080/v1/", "m", "http://localhost:8080/v1", True),
        ("openai-chat:m@http://[::1]:8080/v1", "m", "http://[::1]:8080/v1", True),
        ("openai-chat:@cf/meta/llama@https://h.example/ai/v1", "@cf/meta/llama", "https://h.example/ai/v1", False),
        (
            "openai-chat:meta/llama-3@https://h.example/v1/chat/completions",
            "meta/llama-3",
            "https://h.example/v1",
            False,
        ),
        (" openai-chat:m@HTTPS://h.example ", "m", "HTTPS://h.example", False),
    ],
)
def test_a_model_string_is_taken_apart(text: str, name: str, base_url: str, loopback: bool) -> None:  # noqa: FBT001
    """Names keep their colons, slashes and at signs; a base URL is what begins like one."""
    spec = parse_model(text)
    assert (spec.name, spec.base_url, spec.loopback) == (name, base_url, loopback)
    assert parse_model(spec.id) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpt-5", "not a model of a protocol"),
        ("", "not a model of a protocol"),
        ("openai-chat", "not a model of a protocol"),
        ("openai-chat:", "names no model"),
        ("openai-chat:@http://h/v1", "names no model"),
        ("openai-chat:m@localhost:8080", "begins with http"),
        ("openai-chat:m@10.0.0.1", "begins with http"),
        ("openai-chat:m@http://", "no host"),
        ("openai-chat:m@http://h:99999/v1", "cannot be read"),
        ("openai-chat:m@http://h/v1?x=1", "ends before"),
        ("openai:gpt-5", "Responses"),
        ("anthropic:claude", "Messages"),
        ("gemini:pro", "Gemini"),
        ("script:file.toml", "scripts"),
    ],
)
def test_what_is_not_understood_is_refused_with_an_example(text: str, says: str) -> None:
    """The refusal names what is wrong, what is accepted, and shows one that works."""
    with pytest.raises(UsageError) as caught:
        parse_model(text)
    assert says in str(caught.value)
    assert "openai-chat:qwen3@http://127.0.0.1:8080/v1" in str(caught.value)


def test_gat_5_a_password_in_a_url_is_refused_and_not_shown() -> None:
    """What stands before the @ of a URL is a secret."""
    with pytest.raises(UsageError) as caught:
        parse_model("openai-chat:m@https://user:hunter2@h.example/v1")
    assert "hunter2" not in str(caught.value)


def test_openai_s_key_is_for_openai() -> None:
    """A key of one provider is never offered to another."""
    assert parse_model("openai-chat:m").key_variables == ("OPENAI_API_KEY", "CALLBOARD_API_KEY")
    assert parse_model("openai-chat:m@https://h.example/v1").key_variables == ("CALLBOARD_API_KEY",)
    assert parse_model("openai-chat:m@https://api.openai.com.evil.example/v1").key_variables == ("CALLBOARD_API_KEY",)


@given(st.text(max_size=40), st.sampled_from(["", "openai-chat:", "openai-chat:m@http://"]))
def test_any_text_is_a_spec_or_a_usage_error(text: str, start: str) -> None:
    """No text makes it raise anything else."""
    try:
        spec = parse_model(start + text)
    except UsageError:
        return
    assert isinstance(spec, ModelSpec)
    assert isinstance(spec.loopback, bool)
